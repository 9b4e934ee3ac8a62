"""URLs of the pages: each view states its own. `fleet.urls` adds those of the annexes."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import RedirectView

from fleet.dashboard import agent_package, bulk, caches, desk, events, fleet_map, machines, policy, sets, timeline
from fleet.dashboard.pages import pages_of
from fleet.domain.intake import EVENT_ID


class EventId(StringConverter):
    """URL converter for an EventId; other texts do not match."""

    regex = EVENT_ID


register_converter(EventId, "event")

PAGES = [
    *pages_of(bulk, caches, desk, events, fleet_map, machines, policy, sets, timeline),
    path("services/<path:name>/", caches.service_page, name="service"),
    path("agent/requirements.txt", agent_package.requirements, name="agent-requirements"),
    path("agent/install.ps1", agent_package.download_installer, name="agent-installer"),
    path("agent/<str:name>", agent_package.download, name="agent-package"),
    # Earlier URLs of these pages.
    path("events/", RedirectView.as_view(pattern_name="events", query_string=True)),
    path("rules/", RedirectView.as_view(pattern_name="rules", query_string=True)),
]
