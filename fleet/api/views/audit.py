"""Who did what, through what, why: searched, paged, and as files."""

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import Call, describe, filtered, filters_of
from fleet.api.shapes.events import EntryShape
from fleet.projections.timeline import audit
from fleet.wording.say import recorded
from fleet.wording.timeline import kinds_named

AUDIT_FILTERS = filters_of(
    audit.AuditFilter,
    {
        "person": "Who acted: a person's name, or `rule: ` and a rule's.",
        "via": "`page`, `api`, `rule` or `command`; may be repeated.",
        "kind": "A kind of entry; may be repeated.",
        "set": "The id of a set; those merged into it count.",
        "machine": "The id of a machine.",
        "event": "An EventId, in any case.",
        "since": "At or after this time.",
        "until": "Before this time.",
        "q": "Part of a name, of a kind as people call it, of the reason, or of the text.",
    },
)
CSV, JSON_LINES = "text/csv", "application/jsonl"


class Audit(Call):
    @describe(
        "list_audit", "Who did what, through what and why, newest first", page=EntryShape, parameters=AUDIT_FILTERS
    )
    def get(self, request: Request) -> Response:
        found = acts_of(request)
        return self.paged(
            request, EntryShape, lambda cursor, size: audit.listing(entries=found, cursor=cursor, size=size)
        )


class AuditCsv(Call):
    @describe(
        "export_audit_csv",
        "The same as CSV, all of it",
        answer=OpenApiTypes.STR,
        kind=CSV,
        problems=(422,),
        parameters=AUDIT_FILTERS,
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        found = acts_of(request)
        return streamed(audit.csv_lines(found, text=recorded), f"{CSV}; charset=utf-8", "audit.csv")


class AuditJsonLines(Call):
    @describe(
        "export_audit_jsonl",
        "The same as JSON lines, all of it",
        answer=OpenApiTypes.STR,
        kind=JSON_LINES,
        problems=(422,),
        parameters=AUDIT_FILTERS,
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        found = acts_of(request)
        return streamed(audit.json_lines(found, text=recorded), JSON_LINES, "audit.jsonl")


def acts_of(request: Request) -> Any:
    """The entries that the filters leave. Raises Problem."""
    return filtered(request, audit.AuditFilter(request.query_params, kinds_named=kinds_named))


def streamed(lines: Iterator[str], kind: str, name: str) -> StreamingHttpResponse:
    """A file that is made while it is sent."""
    return StreamingHttpResponse(
        lines, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
