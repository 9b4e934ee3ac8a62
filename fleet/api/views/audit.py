"""Who did what, through what, why: searched, paged, and as files."""

from collections.abc import Iterator
from datetime import datetime

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import PAGE_PARAMETERS, Call, filtered, names_of, problem_answers, query_parameters
from fleet.api.shapes.events import EntrySerializer
from fleet.api.shapes.pages import page_of
from fleet.projections import audit

AUDIT_PARAMETERS = query_parameters(
    ("person", str, "Who acted: a person's name, or `rule: ` and a rule's."),
    ("via", str, "`page`, `api`, `rule` or `command`; may be repeated."),
    ("kind", str, "A kind of entry; may be repeated."),
    ("set", int, "The id of a set; those merged into it count."),
    ("machine", int, "The id of a machine."),
    ("event", str, "An EventId, in any case."),
    ("since", datetime, "At or after this time."),
    ("until", datetime, "Before this time."),
    ("q", str, "Part of the text, of the reason, or of a token's name."),
    repeated=("via", "kind"),
)
FILTERS = [parameter for parameter in AUDIT_PARAMETERS if parameter not in PAGE_PARAMETERS]
CSV, JSON_LINES = "text/csv", "application/jsonl"


class Audit(Call):
    knows = names_of(AUDIT_PARAMETERS)

    @extend_schema(
        operation_id="list_audit",
        summary="Who did what, through what and why, newest first",
        parameters=AUDIT_PARAMETERS,
        responses={200: page_of(EntrySerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, audit.AuditFilter(request.query_params))
        return self.paged(
            request, EntrySerializer, lambda cursor, size: audit.listing(entries=found, cursor=cursor, size=size)
        )


class AuditCsv(Call):
    knows = names_of(FILTERS)

    @extend_schema(
        operation_id="export_audit_csv",
        summary="The same as CSV, all of it",
        parameters=FILTERS,
        responses={(200, CSV): OpenApiTypes.STR, **problem_answers(422)},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        found = filtered(request, audit.AuditFilter(request.query_params))
        return streamed(audit.csv_lines(found), f"{CSV}; charset=utf-8", "audit.csv")


class AuditJsonLines(Call):
    knows = names_of(FILTERS)

    @extend_schema(
        operation_id="export_audit_jsonl",
        summary="The same as JSON lines, all of it",
        parameters=FILTERS,
        responses={(200, JSON_LINES): OpenApiTypes.STR, **problem_answers(422)},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        found = filtered(request, audit.AuditFilter(request.query_params))
        return streamed(audit.json_lines(found), JSON_LINES, "audit.jsonl")


def streamed(lines: Iterator[str], kind: str, name: str) -> StreamingHttpResponse:
    """A file that is made while it is sent."""
    return StreamingHttpResponse(
        lines, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
