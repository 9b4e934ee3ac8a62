"""REST API of the audit and of storage."""

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, filters_of, list_call
from fleet.api.shapes.derive import shape
from fleet.audit import queries as audit_queries
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.queries import AuditFilter, LeavingRow, StorageKind
from fleet.dashboard.export import named

AUDIT_FILTERS = filters_of(AuditFilter)
CSV, JSON_LINES = "text/csv", "application/jsonl"


@list_call("list_audit", audit_queries.listing, AuditFilter, "entries", orders=("at",))
class Audit(Call):
    """List actions: who did what, by which means and why, newest first

    Actions of users, rules and commands, with their reason and what they changed. Reports of machines are in the
    timeline of each event instead. With `q`, and with several filters at once, a page searches a limited number of
    entries: it may have fewer results than requested, or none. Follow `next` until it is null.
    """


class AuditCsv(Call):
    @describe("export_audit_csv", answer=OpenApiTypes.STR, kind=CSV, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """Export the filtered audit as CSV

        All entries that match the filters, as one streamed file with a header line. A cell that a spreadsheet would
        read as a formula begins with an apostrophe.
        """
        lines = audit_queries.csv_lines(self.filtered(AuditFilter))
        return named(StreamingHttpResponse(lines, content_type=f"{CSV}; charset=utf-8"), "audit.csv")


class AuditJsonLines(Call):
    @describe("export_audit_jsonl", answer=OpenApiTypes.STR, kind=JSON_LINES, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """Export the filtered audit as JSON lines

        All entries that match the filters, as one streamed file with one JSON object a line.
        """
        lines = audit_queries.json_lines(self.filtered(AuditFilter))
        return named(StreamingHttpResponse(lines, content_type=JSON_LINES), "audit.jsonl")


# Storage: database size and growth, and the state of the archive.

KINDS = [kind.value for kind in ArchiveKind]
shape(StorageKind, kind=serializers.ChoiceField(KINDS, help_text="What it is."))
shape(LeavingRow, kind=serializers.ChoiceField(KINDS, help_text="What it is."))


@detail_call("get_storage", audit_queries.storage, needs="admin")
class Storage(Call):
    """Get the size and growth of the database, and the state of the archive

    Sizes are bytes. Entries are archived before they are deleted; `archive.fault` states why the archive fails.
    """
