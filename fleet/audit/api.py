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
        """List actions: who did what, by which means and why, newest first

        Actions of users, rules and commands, with their reason and what they changed. Reports of machines are in the
        timeline of each event instead. With `q`, and with several filters at once, a page searches a limited number of
        entries: it may have fewer results than requested, or none. Follow `next` until it is null.
        """
        return audit_queries.listing(entries=self.acts(), **self.place)


class AuditCsv(Acts):
    @describe("export_audit_csv", answer=OpenApiTypes.STR, kind=CSV, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """Export the filtered audit as CSV

        All entries that match the filters, as one streamed file with a header line. A cell that a spreadsheet would
        read as a formula begins with an apostrophe.
        """
        lines = audit_queries.csv_lines(self.acts(), text=recorded)
        return named(StreamingHttpResponse(lines, content_type=f"{CSV}; charset=utf-8"), "audit.csv")


class AuditJsonLines(Acts):
    @describe("export_audit_jsonl", answer=OpenApiTypes.STR, kind=JSON_LINES, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """Export the filtered audit as JSON lines

        All entries that match the filters, as one streamed file with one JSON object a line.
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
        """Get the size and growth of the database, and the state of the archive

        Sizes are bytes. Entries are archived before they are deleted; `archive.fault` states why the archive fails.
        """
        return storage(now=self.now)
