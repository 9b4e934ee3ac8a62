"""REST API of the audit and of storage."""

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers

from fleet.api.calls import Call
from fleet.api.schema import describe, filters_of, ordering
from fleet.api.shapes.derive import shape
from fleet.audit import queries as audit_queries
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.queries import LeavingRow, StorageKind, storage
from fleet.audit.queries import Storage as Stored
from fleet.audit.views import named
from fleet.projections.pages import Page
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.say import recorded
from fleet.wording.timeline import kinds_named

AUDIT_FILTERS = filters_of(audit_queries.AuditFilter)
CSV, JSON_LINES = "text/csv", "application/jsonl"


class Acts(Call):
    def acts(self) -> Any:
        """Return the entries that match the filters. Raises Problem."""
        return self.filtered(audit_queries.AuditFilter, kinds_named=kinds_named)


class Audit(Acts):
    @describe("list_audit", parameters=[*AUDIT_FILTERS, ordering("at")])
    def get(self) -> Page[TimelineRow]:
        """Who did what, through what and why, newest first

        Acts of people, rules and commands, with the reason that was given and what they changed. What machines report
        is not among them: it stands in the timeline of each event. With `q`, and with several filters at once, so many
        entries are looked through for a page: it may hold fewer than asked for, or none, and `next` goes on.
        """
        return audit_queries.listing(entries=self.acts(), **self.place)


class AuditCsv(Acts):
    @describe("export_audit_csv", answer=OpenApiTypes.STR, kind=CSV, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """The same as CSV, all of it

        All entries that the filters leave, as one file with a head line, made while it is sent. A cell that a
        spreadsheet would take for a formula begins with an apostrophe.
        """
        lines = audit_queries.csv_lines(self.acts(), text=recorded)
        return named(StreamingHttpResponse(lines, content_type=f"{CSV}; charset=utf-8"), "audit.csv")


class AuditJsonLines(Acts):
    @describe("export_audit_jsonl", answer=OpenApiTypes.STR, kind=JSON_LINES, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """The same as JSON lines, all of it

        All entries that the filters leave, one JSON object a line, made while it is sent.
        """
        lines = audit_queries.json_lines(self.acts(), text=recorded)
        return named(StreamingHttpResponse(lines, content_type=JSON_LINES), "audit.jsonl")


# Storage: database size and growth, and the state of the archive.

KINDS = [kind.value for kind in ArchiveKind]
shape(StorageKind, kind=serializers.ChoiceField(KINDS, help_text="What it is."))
shape(LeavingRow, kind=serializers.ChoiceField(KINDS, help_text="What it is."))


class Storage(Call):
    @describe("get_storage", needs="admin")
    def get(self) -> Stored:
        """What the database holds, how it grows, and how the archive is

        Sizes are bytes. What leaves goes into the archive first; what is wrong with that stands in `archive.fault`.
        """
        return storage(now=self.now)
