"""Timelines: entries of an event, a set, a machine, or the fleet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Subquery

from fleet.domain.actor import ActorKind
from fleet.domain.caches.outages import outages_of
from fleet.domain.machines.arrivals import arrivals_of
from fleet.domain.orders.series import Series, series_of
from fleet.domain.reason import Reason, from_json
from fleet.domain.shapes import like
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Entry, ScheduledEvent
from fleet.models.nearest import Near, NearRows
from fleet.models.timeline import ACTING
from fleet.projections.caches.maintenances import CacheRef, cache_ref
from fleet.projections.pages import Key, Page, Segment, cut_page, ordered, read_page
from fleet.projections.refs import MachineRef, SetRef, machine_ref, set_ref
from fleet.projections.sight import seen, without_names
from fleet.projections.timeline.names import named

# Of one event, where some of it has left.
MOST_WHOLE = 5_000


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One entry: when it happened, when it was written, what, by whom and through what.

    `actor_kind` is of what kind the actor is, whatever its name; None where the entry does not tell. `why` to `address`
    are filled where a person or a rule acted. `series` is what people read it as a part of, where it is one of many.
    """

    id: int
    at: datetime
    recorded_at: datetime
    kind: EntryKind
    event_id: str | None
    event_type: str | None
    drill: bool
    set: SetRef | None
    machine: MachineRef | None
    approval_id: int | None
    cache: CacheRef | None
    maintenance_id: int | None
    actor: str
    actor_kind: ActorKind | None
    via: str
    token_name: str
    text: str
    why: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    request_id: str
    address: str
    data: dict[str, Any]
    series: Series | None = None
    # Who answers for the service account that acted; empty where nobody does, and where a person or anything else did.
    actor_owner: str = ""

    @property
    def is_act(self) -> bool:
        """A person or a rule did it."""
        return self.via in ACTING

    @property
    def is_own(self) -> bool:
        """The machine that it is about tells it of itself."""
        own = self.actor_kind is ActorKind.MACHINE
        return own and self.machine is not None and self.actor == self.machine.resource_name

    @property
    def rule(self) -> Reason | str:
        """How the rule that acted was worded then; empty where none did."""
        worded: Reason | str = from_json(self.data.get("rule", ""))
        return worded


def rows_of(entries: Iterable[Entry]) -> tuple[TimelineRow, ...]:
    """With the names of people as they are known now. One query where somebody is named."""
    rows = list(entries)
    return tuple(
        like(
            TimelineRow,
            entry,
            event_id=entry.event.event_id if entry.event else None,
            event_type=entry.event.event_type if entry.event else None,
            drill=entry.event.drill if entry.event else False,
            actor=names.actor,
            text=names.text,
            actor_kind=names.actor_kind,
            actor_owner=names.actor_owner,
            set=set_ref(entry.availability_set) if entry.availability_set else None,
            machine=machine_ref(entry.machine) if entry.machine else None,
            cache=cache_ref(entry.cache) if entry.cache else None,
            data=without_names(names.data),
            before=without_names(names.before),
            after=without_names(names.after),
        )
        for entry, names in zip(rows, named(rows), strict=True)
    )


def with_subjects(entries: QuerySet[Entry]) -> QuerySet[Entry]:
    """Entries with all that `rows_of` needs, without the large `compute`."""
    return entries.select_related("event", "availability_set", "machine", "cache").defer("machine__compute")


def _page(
    entries: QuerySet[Entry], *, cursor: str | None, size: int | None, order: str = "", newest_first: bool = True
) -> Page[TimelineRow]:
    rows = with_subjects(entries)
    own = [Segment(rows, "at", descending=newest_first)]
    page = read_page(ordered(rows, order, own), cursor=cursor, size=size)
    return page.map(lambda found: _in_series(rows_of(found)))


def _in_series(rows: Sequence[TimelineRow]) -> tuple[TimelineRow, ...]:
    found = series_of(rows) | outages_of(rows) | arrivals_of(rows)
    return tuple(replace(row, series=found.get(row.id)) for row in rows) if found else tuple(rows)


def with_merged(set_id: int) -> list[int]:
    """The set and those that were merged into it (row ids): entries keep the set that they were written of."""
    return [set_id, *seen(AvailabilitySet).filter(merged_into=set_id).values_list("pk", flat=True)]


def for_event(
    *,
    event_id: str,
    entries: QuerySet[Entry] | None = None,
    order: str = "",
    cursor: str | None = None,
    size: int | None = None,
) -> Page[TimelineRow]:
    """Oldest first: an event is read as a story. `entries` is a filtered queryset, else all of them. Two queries.

    What has left the database is not in it (`archive.of_event`, `told_whole`).
    """
    event = seen(ScheduledEvent).filter(event_id=event_id.upper()).values("pk")
    rows = (seen(Entry) if entries is None else entries).filter(event=Subquery(event))
    return _page(rows, cursor=cursor, size=size, order=order, newest_first=False)


def told_whole(
    *,
    event_id: str,
    left: Iterable[Entry],
    entries: QuerySet[Entry],
    order: str = "",
    cursor: str | None = None,
    size: int | None = None,
) -> Page[TimelineRow]:
    """The timeline of an event of which some has left, as one: `left` comes out of the archive. One query."""
    live = with_subjects(entries.filter(event__event_id=event_id.upper())).order_by("at", "pk")[:MOST_WHOLE]
    rows = {row.id: row for row in rows_of([*left, *live])}
    back = -1 if order.startswith("-") else 1

    def key(row: TimelineRow) -> Key:
        return (back * int(row.at.timestamp() * 1_000_000), back * row.id)

    page = cut_page(list(rows.values()), key, cursor=cursor, size=size)
    return page.map(_in_series)


def without_sightings(entries: QuerySet[Entry]) -> QuerySet[Entry]:
    """For overviews: that a sixth machine has seen the event, too, is no news there. The event's own page tells it."""
    return entries.exclude(kind=EntryKind.EVENT_SIGHTED.value)


def for_set(*, set_id: int, cursor: str | None = None, size: int | None = None) -> Page[TimelineRow]:
    """Newest first, with the entries of sets that were merged into it, without further sightings. Three queries."""
    sets = with_merged(set_id)
    entries = without_sightings(seen(Entry).filter(availability_set__in=sets))
    if len(sets) > 1 and isinstance(entries, NearRows):
        entries = entries.near(Near("availability_set", sets))
    return _page(entries, cursor=cursor, size=size)


def for_machine(*, machine_id: int, cursor: str | None = None, size: int | None = None) -> Page[TimelineRow]:
    """Newest first. Two queries."""
    return _page(seen(Entry).filter(machine_id=machine_id), cursor=cursor, size=size)


def for_cache(*, cache_id: int, cursor: str | None = None, size: int | None = None) -> Page[TimelineRow]:
    """Newest first. Two queries."""
    return _page(seen(Entry).filter(cache_id=cache_id), cursor=cursor, size=size)


def fleet(
    *, entries: QuerySet[Entry] | None = None, order: str = "", cursor: str | None = None, size: int | None = None
) -> Page[TimelineRow]:
    """Newest first; `entries` is a filtered queryset (see `filters.EntryFilter`), else all but further sightings.

    Two queries.
    """
    rows = without_sightings(seen(Entry)) if entries is None else entries
    return _page(rows, order=order, cursor=cursor, size=size)
