"""Who did what, through what, why: searched, paged, and as files."""

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes

from fleet.api.calls import Call
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import MACHINES, PLACES
from fleet.api.shapes.events import EntryShape
from fleet.projections.pages import Page
from fleet.projections.timeline import audit
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.say import recorded
from fleet.wording.timeline import kinds_named

AUDIT_FILTERS = filters_of(
    audit.AuditFilter,
    {
        **PLACES,
        **MACHINES,
        "person": "Who acted: a person's name, or `rule: ` and a rule's.",
        "actor_kind": "`person`, `rule` or `command`.",
        "via": "`page`, `api`, `slack`, `pagerduty`, `rule` or `command`; may be repeated.",
        "kind": "A kind of entry; may be repeated.",
        "event": "An EventId, in any case.",
        "since": "At or after this time.",
        "until": "Before this time.",
        "q": "Part of a name, of a kind as people call it, of the reason, or of the text.",
    },
)
CSV, JSON_LINES = "text/csv", "application/jsonl"


class Acts(Call):
    def acts(self) -> Any:
        """The entries that the filters leave. Raises Problem."""
        return self.filtered(audit.AuditFilter, kinds_named=kinds_named)


class Audit(Acts):
    @describe(
        "list_audit",
        "Who did what, through what and why, newest first",
        (
            "Acts of people, rules and commands, with the reason that was given and what they changed. What"
            " machines report is not among them: it stands in the timeline of each event. With `q`, and with several"
            " filters at once, so many entries are looked through for a page: it may hold fewer than asked for, or"
            " none, and `next` goes on."
        ),
        page=EntryShape,
        parameters=[*AUDIT_FILTERS, ordering("at")],
    )
    def get(self) -> Page[TimelineRow]:
        return audit.listing(entries=self.acts(), **self.place)


class AuditCsv(Acts):
    @describe(
        "export_audit_csv",
        "The same as CSV, all of it",
        (
            "All entries that the filters leave, as one file with a head line, made while it is sent. A cell"
            " that a spreadsheet would take for a formula begins with an apostrophe."
        ),
        answer=OpenApiTypes.STR,
        kind=CSV,
        parameters=AUDIT_FILTERS,
    )
    def get(self) -> StreamingHttpResponse:
        return streamed(audit.csv_lines(self.acts(), text=recorded), f"{CSV}; charset=utf-8", "audit.csv")


class AuditJsonLines(Acts):
    @describe(
        "export_audit_jsonl",
        "The same as JSON lines, all of it",
        ("All entries that the filters leave, one JSON object a line, made while it is sent."),
        answer=OpenApiTypes.STR,
        kind=JSON_LINES,
        parameters=AUDIT_FILTERS,
    )
    def get(self) -> StreamingHttpResponse:
        return streamed(audit.json_lines(self.acts(), text=recorded), JSON_LINES, "audit.jsonl")


def streamed(lines: Iterator[str], kind: str, name: str) -> StreamingHttpResponse:
    """A file that is made while it is sent."""
    return StreamingHttpResponse(
        lines, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
