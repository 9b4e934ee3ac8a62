"""REST API of the audit and of storage."""

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, filters_of, list_call
from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import WhySerializer
from fleet.audit import handovers
from fleet.audit import queries as audit_queries
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.handovers import SentHandover
from fleet.audit.queries import AuditFilter, LeavingRow, StorageKind
from fleet.dashboard.export import named
from fleet.operations.inputs import Time

AUDIT_FILTERS = filters_of(AuditFilter)
CSV, JSON_LINES = "text/csv", "application/jsonl"


@list_call("list_audit", audit_queries.listing, AuditFilter, "entries", orders=("at",))
class Audit(Call, at="audit/"):
    """List actions: who did what, by which means and why, newest first

    Actions of users, rules and commands, with their reason and what they changed. Reports of machines are in the
    timeline of each event instead. With `q`, and with several filters at once, a page searches a limited number of
    entries: it may have fewer results than requested, or none. Follow `next` until it is null.
    """


class AuditCsv(Call, at="audit/export.csv"):
    @describe("export_audit_csv", answer=OpenApiTypes.STR, kind=CSV, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """Export the filtered audit as CSV

        All entries that match the filters, as one streamed file with a header line. A cell that a spreadsheet would
        read as a formula begins with an apostrophe.
        """
        lines = audit_queries.csv_lines(self.filtered(AuditFilter))
        return named(StreamingHttpResponse(lines, content_type=f"{CSV}; charset=utf-8"), "audit.csv")


class AuditJsonLines(Call, at="audit/export.jsonl"):
    @describe("export_audit_jsonl", answer=OpenApiTypes.STR, kind=JSON_LINES, parameters=AUDIT_FILTERS)
    def get(self) -> StreamingHttpResponse:
        """Export the filtered audit as JSON lines

        All entries that match the filters, as one streamed file with one JSON object a line.
        """
        lines = audit_queries.json_lines(self.filtered(AuditFilter))
        return named(StreamingHttpResponse(lines, content_type=JSON_LINES), "audit.jsonl")


# Handovers of a shift to the next one.


class HandoverRequestSerializer(WhySerializer):
    since = Time(required=False, allow_null=True, default=None, help_text="The begin; 12 hours earlier if null.")
    until = Time(required=False, allow_null=True, default=None, help_text="The end; now if null or later.")


@list_call("list_handovers", handovers.listing)
class Handovers(Call, at="handovers/"):
    """List the handovers of the last three days, newest first

    What is open, due, decided and missed, and who confirmed that they took over.
    """

    @describe("send_handover", needs="approve", body=HandoverRequestSerializer)
    def post(self) -> SentHandover:
        """Send a handover to the next shift

        It notifies by the type `handover.sent`. A user sends a handover that ends at the same time once.
        """
        since, until = self.wanted["since"], self.wanted["until"]
        return handovers.send(since=since, until=until, actor=self.commented, now=self.now)


class ConfirmHandover(Call, at="handovers/<int:handover_id>/confirm/"):
    @describe("confirm_handover", needs="approve", problems=("not-found",))
    def post(self, handover_id: int) -> None:
        """Confirm that the next shift has taken over

        By another user than the one who sent it. A repeated call changes nothing.
        """
        handovers.confirm(handover_id=handover_id, actor=self.actor, now=self.now)


# Storage: database size and growth, and the state of the archive.

KINDS = [kind.value for kind in ArchiveKind]
shape(StorageKind, kind=serializers.ChoiceField(KINDS, help_text="What it is."))
shape(LeavingRow, kind=serializers.ChoiceField(KINDS, help_text="What it is."))


@detail_call("get_storage", audit_queries.storage, needs="admin")
class Storage(Call, at="storage/"):
    """Get the size and growth of the database, and the state of the archive

    Sizes are bytes. Entries are archived before they are deleted; `archive.fault` states why the archive fails.
    """
