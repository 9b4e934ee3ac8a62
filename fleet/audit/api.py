"""REST API of the audit and of storage."""

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers

from fleet.api.calls import Call
from fleet.api.schema import MACHINES, PLACE_PLACES, describe, filters_of, ordering
from fleet.api.shapes.derive import shape
from fleet.api.shapes.events import EntryShape
from fleet.audit import queries as audit_queries
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.queries import ArchiveRow, LeavingRow, StorageKind, storage
from fleet.audit.queries import Storage as Stored
from fleet.audit.views import named
from fleet.projections.pages import Page
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.say import recorded
from fleet.wording.timeline import kinds_named

AUDIT_FILTERS = filters_of(
    audit_queries.AuditFilter,
    {
        **PLACE_PLACES,
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
        return self.filtered(audit_queries.AuditFilter, kinds_named=kinds_named)


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
        return audit_queries.listing(entries=self.acts(), **self.place)


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
        lines = audit_queries.csv_lines(self.acts(), text=recorded)
        return named(StreamingHttpResponse(lines, content_type=f"{CSV}; charset=utf-8"), "audit.csv")


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
        lines = audit_queries.json_lines(self.acts(), text=recorded)
        return named(StreamingHttpResponse(lines, content_type=JSON_LINES), "audit.jsonl")


# What the database holds, how it grows, and how the archive is.

KINDS = [kind.value for kind in ArchiveKind]
StorageKindShape = shape(
    StorageKind,
    {
        "rows": "Postgres' estimate.",
        "size": "Bytes, with indexes.",
        "parts": "Parts of the table; each leaves as a whole.",
        "daily_rows": "Rows a day, as its newest came; null where that cannot be said yet.",
        "daily_bytes": "Bytes a day, as its newest rows came.",
        "days": "How many days rows stay; null for ever.",
        "held": "Why rows that are old enough have not left; else empty.",
    },
    kind=serializers.ChoiceField(KINDS, help_text="What it is."),
)
LeavingShape = shape(LeavingRow, {"at": "From then on."}, kind=serializers.ChoiceField(KINDS, help_text="What it is."))
ArchiveShape = shape(
    ArchiveRow,
    {
        "where": "Its address without its key; empty where there is no archive.",
        "last_at": "When its last file was written.",
        "worked_at": "When all was well for the last time.",
        "fault": "What is wrong with it; else empty.",
    },
)
StorageShape = shape(
    Stored,
    {
        "size": "Bytes of the whole database.",
        "most": "Bytes that it has room for, or, where nobody said, the next round size.",
        "most_is_stated": "Whether `DATABASE_MAX_GIGABYTES` says it.",
        "daily_bytes": "Bytes a day, as the newest rows came.",
        "full_at": "When it comes to `most`; null for not within ten years, or where that cannot be said.",
        "documents": "Bytes of the bodies of documents.",
        "rest": "Bytes of everything else.",
        "leaving": "What leaves next.",
    },
)


class Storage(Call):
    @describe(
        "get_storage",
        "What the database holds, how it grows, and how the archive is",
        "Sizes are bytes. What leaves goes into the archive first; what is wrong with that stands in `archive.fault`.",
        needs="admin",
        answer=StorageShape,
    )
    def get(self) -> Stored:
        return storage(now=self.now)
