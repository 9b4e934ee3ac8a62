"""The pages."""

from django.contrib.auth import views as auth
from django.urls import path, register_converter
from django.urls.converters import StringConverter

from fleet.dashboard import arranging, cache_views, decisions, views
from fleet.domain.documents import EVENT_ID


class EventId(StringConverter):
    """What an event may be called; anything else is no address here."""

    regex = EVENT_ID


register_converter(EventId, "event")

urlpatterns = [
    path("", views.decision_queue, name="queue"),
    path("pulse/", views.pulse, name="pulse"),
    path("sets/", views.set_list, name="sets"),
    path("sets/<int:set_id>/", views.set_page, name="set"),
    path("sets/<int:set_id>/name/", arranging.name_set, name="set-name"),
    path("sets/<int:set_id>/merge/", arranging.merge_set, name="set-merge"),
    path("blind-spots/", views.blind_spot_page, name="blind-spots"),
    path("machines/", views.machine_list, name="machines"),
    path("machines/<int:machine_id>/", views.machine_page, name="machine"),
    path("events/", views.event_list, name="events"),
    path("events/<event:event_id>/", views.event_page, name="event"),
    path("events/<event:event_id>/documents/", views.event_documents, name="event-documents"),
    path("events/<event:event_id>/export.json", views.event_export, name="event-export"),
    path("events/<event:event_id>/approve/", decisions.approve, name="event-approve"),
    path("approvals/<int:approval_id>/withdraw/", decisions.withdraw, name="approval-withdraw"),
    path("caches/", cache_views.cache_list, name="caches"),
    path("caches/<int:cache_id>/", cache_views.cache_page, name="cache"),
    path("maintenances/<int:maintenance_id>/", cache_views.maintenance_page, name="maintenance"),
    path("timeline/", views.fleet_timeline, name="timeline"),
    path("accounts/login/", auth.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
]
