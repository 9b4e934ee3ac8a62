"""The audit: the timeline's entries by people and rules, searched, paged and exported."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import django_filters
from django.db.models import Q, QuerySet

from fleet.domain.entries import EntryKind
from fleet.models import Entry
from fleet.models.entries import ACTING
from fleet.projections.paging import MAX_PAGE_SIZE, Page
from fleet.projections.timeline import TimelineRow, fleet, with_merged

COLUMNS = (
    "id", "at", "recorded_at", "kind", "actor", "via", "token_name", "text", "why", "before", "after", "event_id",
    "event_type", "set_id", "set", "machine_id", "machine", "approval_id", "request_id", "address",
)  # fmt: skip
# A cell that begins with one of these is a formula to a spreadsheet.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def acts() -> QuerySet[Entry]:
    """What people and rules did. The condition is that of two partial indexes."""
    return Entry.objects.filter(via__in=ACTING)


class AuditFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`person` is the exact name of who acted (a rule's is `rule: …`); `q` looks into texts, reasons and tokens' names;
    `set` includes those merged into it; `event` is an EventId in any case.
    """

    person = django_filters.CharFilter(field_name="actor", label="Person")
    via = django_filters.MultipleChoiceFilter(choices=[(via, via) for via in ACTING], label="Through")
    kind = django_filters.MultipleChoiceFilter(choices=[(kind.value, kind.value) for kind in EntryKind], label="Kind")
    set = django_filters.NumberFilter(method="filter_set", label="Set")
    machine = django_filters.NumberFilter(field_name="machine", label="Machine")
    event = django_filters.CharFilter(field_name="event__event_id", lookup_expr="iexact", label="Event")
    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte", label="Since")
    until = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="lt", label="Until")
    q = django_filters.CharFilter(method="filter_q", label="Search")

    class Meta:
        model = Entry
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, acts() if queryset is None else queryset, **kwargs)

    def filter_set(self, queryset: QuerySet[Entry], name: str, value: Any) -> QuerySet[Entry]:
        return queryset.filter(availability_set__in=with_merged(int(value)))

    def filter_q(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        return queryset.filter(Q(text__icontains=value) | Q(why__icontains=value) | Q(token_name__icontains=value))


def listing(
    *, entries: QuerySet[Entry] | None = None, cursor: str | None = None, size: int | None = None
) -> Page[TimelineRow]:
    """Newest first; `entries` is a filtered queryset (see `AuditFilter`), else all acts. One query."""
    return fleet(entries=acts() if entries is None else entries, cursor=cursor, size=size)


def about(*, username: str, size: int = 25) -> tuple[TimelineRow, ...]:
    """What was done to somebody: their group, scopes, tokens, password. Newest first. One query."""
    return listing(entries=acts().filter(data__person=username), size=size).results


def everything(entries: QuerySet[Entry]) -> Iterator[TimelineRow]:
    """All rows of a filtered queryset, newest first, page by page: memory and each query stay small."""
    cursor = None
    while True:
        page = listing(entries=entries, cursor=cursor, size=MAX_PAGE_SIZE)
        yield from page.results
        cursor = page.next
        if cursor is None:
            return


def csv_lines(entries: QuerySet[Entry]) -> Iterator[str]:
    """A CSV file line by line, with a head. No cell is a formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    yield _taken(buffer)
    for number, row in enumerate(everything(entries), 1):
        writer.writerow([defused(_text(value)) for value in _values(row).values()])
        if number % 100 == 0:
            yield _taken(buffer)
    yield _taken(buffer)


def json_lines(entries: QuerySet[Entry]) -> Iterator[str]:
    """One JSON object a line."""
    pieces: list[str] = []
    for row in everything(entries):
        pieces.append(json.dumps(_values(row), ensure_ascii=False) + "\n")
        if len(pieces) == 100:
            yield "".join(pieces)
            pieces.clear()
    yield "".join(pieces)


def defused(cell: str) -> str:
    """The cell as text to a spreadsheet, whatever it begins with."""
    return f"'{cell}" if cell.startswith(FORMULAS) else cell


def _values(row: TimelineRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": _iso(row.at),
        "recorded_at": _iso(row.recorded_at),
        "kind": row.kind.value,
        "actor": row.actor,
        "via": row.via,
        "token_name": row.token_name,
        "text": row.text,
        "why": row.why,
        "before": row.before,
        "after": row.after,
        "event_id": row.event_id,
        "event_type": row.event_type,
        "set_id": row.set.id if row.set else None,
        "set": row.set.name if row.set else None,
        "machine_id": row.machine.id if row.machine else None,
        "machine": row.machine.resource_name if row.machine else None,
        "approval_id": row.approval_id,
        "request_id": row.request_id,
        "address": row.address,
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text
