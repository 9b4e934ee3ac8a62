"""The audit: the timeline's entries by people and rules, searched, paged and exported."""

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

import django_filters
from django.db.models import F, Func, Q, QuerySet, TextField

from fleet.domain.actor import COMMAND_LINE, ActorKind
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import Entry
from fleet.models.nearest import Near, NearRows
from fleet.models.timeline import ACTING
from fleet.projections.filter_kinds import TimeFilter
from fleet.projections.pages import MAX_PAGE_SIZE, Page
from fleet.projections.people import PersonRow
from fleet.projections.places import EntryPlaceFilter
from fleet.projections.sight import seen
from fleet.projections.timeline.entries import TimelineRow, fleet
from fleet.projections.timeline.names import called, keys_of

COLUMNS = (
    "id", "at", "recorded_at", "kind", "actor", "via", "token_name", "text", "why", "before", "after", "event_id",
    "event_type", "set_id", "set", "machine_id", "machine", "approval_id", "request_id", "address",
    "actor_kind", "subscription", "resource_group", "cache_id", "cache",
)  # fmt: skip
# A cell that begins with one of these is a formula to a spreadsheet.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


ACTING_KINDS = (ActorKind.PERSON, ActorKind.RULE, ActorKind.COMMAND)


def acts() -> QuerySet[Entry]:
    """What people and rules did. The condition is that of two partial indexes."""
    return seen(Entry).filter(via__in=ACTING)


class Told(Func):
    """Every text in these JSON columns, without the names of their fields: what an entry's words are made of."""

    template = (
        "(SELECT string_agg(told #>> '{}', E'\\n') FROM jsonb_path_query(jsonb_build_array(%(expressions)s),"
        " 'strict $.**') AS told WHERE jsonb_typeof(told) = 'string')"
    )
    output_field = TextField()


class AuditFilter(EntryPlaceFilter):
    """`person` is the exact name of who acted (a rule's is `rule: …`), `actor_kind` their kind; `set` includes those
    merged into it; `event` is an EventId in any case. `q` looks into names, kinds and reasons, and into the texts
    of entries that have one.

    `kinds_named` gives the kinds that people call by a name with a text in it.
    """

    person = django_filters.CharFilter(method="filter_person", label="Person")
    actor_kind = django_filters.ChoiceFilter(
        choices=[(kind.value, kind.value) for kind in ACTING_KINDS], method="filter_actor_kind", label="Kind of actor"
    )
    via = django_filters.MultipleChoiceFilter(choices=[(via, via) for via in ACTING], label="Through")
    kind = django_filters.MultipleChoiceFilter(choices=[(kind.value, kind.value) for kind in EntryKind], label="Kind")
    event = django_filters.CharFilter(method="filter_event", label="Event")
    since = TimeFilter(field_name="at", lookup_expr="gte", label="Since")
    until = TimeFilter(field_name="at", lookup_expr="lt", label="Until")
    q = django_filters.CharFilter(method="filter_q", label="Search")

    class Meta:
        model = Entry
        fields: list[str] = []

    def __init__(
        self,
        data: Any = None,
        queryset: Any = None,
        *,
        kinds_named: Callable[[str], Collection[EntryKind]] = lambda text: (),
        **kwargs: Any,
    ) -> None:
        self.kinds_named = kinds_named
        super().__init__(data, acts() if queryset is None else queryset, **kwargs)

    def filter_person(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        keys = keys_of(value)
        found = queryset.filter(actor__in=keys)
        return found.near(Near("actor", keys, Q(via__in=ACTING))) if isinstance(found, NearRows) else found

    def filter_actor_kind(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        by_command = Q(via="command", actor=COMMAND_LINE.name)
        match ActorKind(value):
            case ActorKind.RULE:
                return queryset.filter(via="rule")
            case ActorKind.COMMAND:
                return queryset.filter(by_command)
        return queryset.exclude(via="rule").exclude(by_command)

    def filter_q(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        found = Q(kind__in=[kind.value for kind in self.kinds_named(value)])
        for name in ("kind", "actor", "text", "why", "token_name", "told"):
            found |= Q(**{f"{name}__icontains": value})
        if people := called(value):
            found |= Q(actor__in=people) | Q(told__regex=rf"(^|\n)({'|'.join(people)})(\n|$)")
        return queryset.alias(told=Told(F("data"), F("before"), F("after"))).filter(found)


def listing(
    *, entries: QuerySet[Entry] | None = None, order: str = "", cursor: str | None = None, size: int | None = None
) -> Page[TimelineRow]:
    """Newest first; `entries` is a filtered queryset (see `AuditFilter`), else all acts. One query."""
    return fleet(entries=acts() if entries is None else entries, order=order, cursor=cursor, size=size)


def about(*, person: PersonRow, size: int = 25) -> tuple[TimelineRow, ...]:
    """What was done to somebody: their group, scopes, tokens, password. Newest first. Two queries."""
    return listing(entries=acts().filter(data__person__in=[person.pseudonym, person.username]), size=size).results


def everything(entries: QuerySet[Entry]) -> Iterator[TimelineRow]:
    """All rows of a filtered queryset, newest first, page by page: memory and each query stay small."""
    cursor = None
    while True:
        page = listing(entries=entries, cursor=cursor, size=MAX_PAGE_SIZE)
        yield from page.results
        cursor = page.next
        if cursor is None:
            return


def csv_lines(entries: QuerySet[Entry], *, text: Callable[[TimelineRow], str]) -> Iterator[str]:
    """A CSV file line by line, with a head. `text` words an entry. No cell is a formula."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    yield _taken(buffer)
    for number, row in enumerate(everything(entries), 1):
        writer.writerow([defused(_text(value)) for value in _values(row, text(row)).values()])
        if number % 100 == 0:
            yield _taken(buffer)
    yield _taken(buffer)


def json_lines(entries: QuerySet[Entry], *, text: Callable[[TimelineRow], str]) -> Iterator[str]:
    """One JSON object a line. `text` words an entry."""
    pieces: list[str] = []
    for row in everything(entries):
        pieces.append(json.dumps(_values(row, text(row)), ensure_ascii=False) + "\n")
        if len(pieces) == 100:
            yield "".join(pieces)
            pieces.clear()
    yield "".join(pieces)


def defused(cell: str) -> str:
    """The cell as text to a spreadsheet, whatever it begins with."""
    return f"'{cell}" if cell.startswith(FORMULAS) else cell


def _values(row: TimelineRow, text: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": iso(row.at),
        "recorded_at": iso(row.recorded_at),
        "kind": row.kind.value,
        "actor": row.actor,
        "via": row.via,
        "token_name": row.token_name,
        "text": text,
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
        "actor_kind": row.actor_kind,
        "subscription": row.set.subscription if row.set else None,
        "resource_group": row.set.resource_group if row.set else None,
        "cache_id": row.cache.id if row.cache else None,
        "cache": row.cache.host if row.cache else None,
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text
