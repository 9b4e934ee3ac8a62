"""URL patterns of the audit for pages and API calls, and a panel on the pages of users."""

from django.urls import path, register_converter

import fleet.dashboard.urls  # noqa: F401 - registers the converter of EventIds
from fleet.accounts import views as account_views
from fleet.api.routes import calls_of
from fleet.audit import api, queries, views
from fleet.dashboard.pages import Panel
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

PAGES = [
    path("storage/", views.storage_page, name="storage"),
    path("audit/", views.audit_page, name="audit"),
    path("audit/export.csv", views.audit_csv, name="audit-csv"),
    path("audit/export.jsonl", views.audit_jsonl, name="audit-jsonl"),
    path("handover/", views.handover_page, name="handover"),
    path("handover/read/", views.read, name="handover-read"),
    path("handover/send/", views.send, name="handover-send"),
    path("handover/<int:handover_id>/confirm/", views.confirm, name="handover-confirm"),
    path("reports/", views.report_list, name="reports"),
    path("reports/<month:month>/", views.month_page, name="report-month"),
    path("reports/<month:month>/<slug:table>.csv", views.month_csv, name="report-month-csv"),
    path("reports/events/<event:event_id>/", views.event_page, name="report-event"),
    path("reports/events/<event:event_id>/report.md", views.event_markdown, name="report-event-markdown"),
    path("reports/events/<event:event_id>/report.json", views.event_json, name="report-event-json"),
]

CALLS = calls_of(api)
