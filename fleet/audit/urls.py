"""URL patterns of the audit for pages and API calls, and a panel on the pages of users."""

from django.urls import register_converter

import fleet.dashboard.urls  # noqa: F401 - registers the converter of EventIds
from fleet.accounts import views as account_views
from fleet.api.urls import calls_of
from fleet.audit import api, queries, views
from fleet.dashboard.pages import Panel, pages_of
from fleet.domain.history import Month


class MonthConverter:
    """URL converter for a month such as `2026-11`."""

    regex = r"2[01][0-9]{2}-(?:0[1-9]|1[0-2])"

    def to_python(self, value: str) -> Month:
        return Month(*map(int, value.split("-")))

    def to_url(self, value: Month) -> str:
        return str(value)


register_converter(MonthConverter, "month")
account_views.MEMBER_PANELS.append(Panel("timeline/person_panel.html", queries.about_and_by))

PAGES = pages_of(views)
CALLS = calls_of(api)
