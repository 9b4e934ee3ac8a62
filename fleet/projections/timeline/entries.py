"""Timelines of an event, a set, a machine or the fleet; the feed of new entries; names of pseudonyms.

An erased user is shown as a pseudonym, even in entries from before 0.2.0, which contain the name itself.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Unpack

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet, Subquery
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan

from fleet.domain.actor import ACTOR_KIND, ActorKind, recorded_kind
from fleet.domain.caches.maintenances import outages_of
from fleet.domain.machines.enrolment import arrivals_of
from fleet.domain.orders.series import Series, series_of
from fleet.domain.pseudonyms import erased_name, hash_of_name, may_be_username, number_of, pseudonym, rename_in_entry
from fleet.domain.reasons import Reason, from_json
from fleet.domain.shapes import from_row, grouped
from fleet.domain.timeline import EntryKind, kinds_of
from fleet.models import AvailabilitySet, Entry, FormerName, ScheduledEvent
from fleet.models.index_scan import IndexRange, IndexScanRows
from fleet.models.timeline import ACTING, HORIZON, NEWEST_ERA
from fleet.projections.caches.maintenances import CacheRef, cache_ref
from fleet.projections.pages import At, Key, OrderedAt, Page, Segment, cut_page, read_list
from fleet.projections.refs import MachineRef, SetRef, machine_ref, set_ref
from fleet.projections.visibility import visible, without_names

# Up to the length of a name; a full stop at the end belongs to the sentence.
EMPTY: Mapping[str, str] = {}
WORD = re.compile(r"[\w@+-]+(?:\.+[\w@+-]+)*")


def named(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the fields of each entry's row that contain names, with the current names of users. One query for all
    names (none without names), and one more for entries from before 0.2.0.
    """
    texts: set[str] = set()
    for entry in entries:
        _of(entry, lambda text: texts.add(text) or text)  # type: ignore[func-returns-value]
        texts.update(WORD.findall(entry.text))
    known, owners = _known(texts)
    return [_of(entry, lambda text: known.get(text, text), owners) for entry in entries]


def keys_of(name: str) -> list[str]:
    """Return the values that the actor column of entries may have for a displayed name.

    For a user these are the pseudonym and, before 0.2.0, the name. For a rule it is the rule's name, for an erased user
    the displayed pseudonym. At most two queries.
    """
    numbers = {number for number in [number_of(name.removeprefix("former "))] if number and name == erased_name(number)}
    if not may_be_username(name):
        return [pseudonym(number) for number in numbers] or [name]
    numbers |= set(visible(User).filter(username=name).values_list("pk", flat=True))
    forgotten = visible(FormerName).filter(hash=hash_of_name(name)).exists()
    return [*(pseudonym(number) for number in numbers), *([] if forgotten else [name])]


def pseudonyms_named(text: str, most: int = 100) -> list[str]:
    """Return the pseudonyms of users whose names contain this text, at most `most`. One query."""
    rows = visible(User).filter(username__icontains=text).order_by("pk").values_list("pk", flat=True)
    return [pseudonym(number) for number in rows[:most]]


def _of(entry: Entry, name: Callable[[str], str], owners: Mapping[str, str] = EMPTY) -> dict[str, Any]:
    kind = recorded_kind(entry.actor, entry.via, entry.data.get(ACTOR_KIND, ""))
    before, after, data = rename_in_entry(entry.kind, (entry.before, entry.after, entry.data), name)
    return {
        # A machine chooses its own name.
        "actor": name(entry.actor) if kind in (ActorKind.PERSON, ActorKind.SERVICE) else entry.actor,
        "actor_owner": owners.get(entry.actor, "") if kind is ActorKind.SERVICE else "",
        "actor_kind": kind,
        "before": before,
        "after": after,
        "data": data,
        # A sentence from before 0.2.0.
        "text": WORD.sub(lambda word: name(word[0]), entry.text) if entry.text else "",
    }


def _known(texts: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    numbers = {number: text for text in texts if (number := number_of(text)) is not None}
    known = {text: erased_name(number) for number, text in numbers.items()}
    owners: dict[str, str] = {}
    if numbers:
        owner = ("service_account__owner__username", "service_account__owner__is_active")
        rows = list(visible(User).filter(pk__in=list(numbers)).values_list("pk", "username", *owner))
        known |= {numbers[number]: name for number, name, *_ in rows}
        owners = {numbers[number]: whose for number, _, whose, may in rows if may}
    hashes = {hash_of_name(text): text for text in texts if may_be_username(text)}
    if hashes:
        found = visible(FormerName).filter(hash__in=list(hashes)).values_list("hash", "number")
        known |= {hashes[one]: erased_name(number) for one, number in found}
    return known, owners


# Timelines: entries of an event, a set, a machine, or the fleet.


# For one event with archived entries.
MOST_WHOLE = 5_000


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One timeline entry: when it happened, when it was written, what happened, and who did it by which means.

    `actor_kind` is None if the entry does not state it. The fields from `why` to `address` are set if a user or a rule
    acted. `series` is the series of similar entries to which this one belongs, if any.
    """

    id: int
    at: Annotated[datetime, "When it happened."]
    recorded_at: Annotated[datetime, "When it was written."]
    kind: EntryKind
    event_id: str | None
    event_type: str | None
    drill: Annotated[bool, "It tells of a drill."]
    set: SetRef | None
    machine: MachineRef | None
    approval_id: int | None
    cache: CacheRef | None
    maintenance_id: int | None
    actor: Annotated[str, "The actor's name."]
    actor_kind: Annotated[
        ActorKind | None,
        "Of what kind they are: a machine may call itself what a person is called. Null where a later"
        " release tells what is not known here.",
    ]
    via: Annotated[str, "`page`, `api`, `slack`, `pagerduty`, `rule`, `command`, `agent` or `relay`."]
    token_name: Annotated[str, "The token that the call carried; empty where there was none."]
    text: str
    why: Annotated[str, "The reason that was given; may be empty."]
    before: Annotated[dict[str, Any] | None, "What an act changed, by field, as it was."]
    after: Annotated[dict[str, Any] | None, "The same, as it is since then."]
    request_id: Annotated[str, "Of the request behind an act; else empty."]
    address: Annotated[str, "Where that request came from; else empty."]
    data: dict[str, Any]
    series: Annotated[
        Series | None,
        "What people read as one line: the orders of one approval that Azure answered by being busy,"
        " listeners of a cache that were cut off together, or machines that enrolled together, as far as"
        " they are on this page. Null for all other entries.",
    ] = None
    # Owner of the service account that acted; empty without an owner, and for other actors.
    actor_owner: str = ""

    @property
    def is_act(self) -> bool:
        """Return whether a user or a rule acted."""
        return self.via in ACTING

    @property
    def is_own(self) -> bool:
        """Return whether the entry is a machine's report about itself."""
        own = self.actor_kind is ActorKind.MACHINE
        return own and self.machine is not None and self.actor == self.machine.resource_name

    @property
    def rule(self) -> Reason | str:
        """Return the wording at that time of the rule that acted; empty if no rule acted."""
        worded: Reason | str = from_json(self.data.get("rule", ""))
        return worded


def rows_of(entries: Iterable[Entry]) -> tuple[TimelineRow, ...]:
    """Build the rows of entries, with the current names of users. At most one query."""
    rows = list(entries)
    return tuple(
        from_row(
            TimelineRow,
            entry,
            event_id=entry.event.event_id if entry.event else None,
            event_type=entry.event.event_type if entry.event else None,
            drill=entry.event.drill if entry.event else False,
            set=set_ref(entry.availability_set) if entry.availability_set else None,
            machine=machine_ref(entry.machine) if entry.machine else None,
            cache=cache_ref(entry.cache) if entry.cache else None,
            **names | {name: without_names(names[name]) for name in ("before", "after", "data")},
        )
        for entry, names in zip(rows, named(rows), strict=True)
    )


def with_subjects(entries: QuerySet[Entry]) -> QuerySet[Entry]:
    """Return entries with all columns that `rows_of` needs. The large column `compute` is not loaded."""
    return entries.select_related("event", "availability_set", "machine", "cache").defer("machine__compute")


def _page(entries: QuerySet[Entry], *, newest_first: bool = True, **at: Unpack[OrderedAt]) -> Page[TimelineRow]:
    page = read_list(Segment(with_subjects(entries), "at", descending=newest_first), **at)
    return page.map(lambda found: _in_series(rows_of(found)))


def _in_series(rows: Sequence[TimelineRow]) -> tuple[TimelineRow, ...]:
    found = series_of(rows) | outages_of(rows) | arrivals_of(rows)
    return tuple(replace(row, series=found.get(row.id)) for row in rows) if found else tuple(rows)


def with_merged(set_id: int) -> list[int]:
    """Return the row ids of the set and of the sets merged into it. Entries still refer to the set for which they were
    written.
    """
    return [set_id, *visible(AvailabilitySet).filter(merged_into=set_id).values_list("pk", flat=True)]


def for_event(*, event_id: str, entries: QuerySet[Entry] | None = None, **at: Unpack[OrderedAt]) -> Page[TimelineRow]:
    """Return a page of an event's timeline, oldest first. `entries` is a filtered queryset; by default all entries. Two
    queries.

    Archived entries are not included (see `ARCHIVE.entries_of` and `complete_timeline`).
    """
    event = visible(ScheduledEvent).filter(event_id=event_id.upper()).values("pk")
    rows = (visible(Entry) if entries is None else entries).filter(event=Subquery(event))
    return _page(rows, newest_first=False, **at)


def notes_of_event(*, event_id: str, **at: Unpack[OrderedAt]) -> Page[TimelineRow]:
    """Return a page of the notes of an event, newest first. Two queries."""
    event = visible(ScheduledEvent).filter(event_id=event_id.upper()).values("pk")
    return _page(visible(Entry).filter(kind=EntryKind.EVENT_NOTED.value, event=Subquery(event)), **at)


def complete_timeline(
    *, event_id: str, left: Iterable[Entry], entries: QuerySet[Entry], order: str = "", **at: Unpack[At]
) -> Page[TimelineRow]:
    """Return a page of an event's timeline that combines the archived entries (`left`) with those in the database. One
    query.
    """
    live = with_subjects(entries.filter(event__event_id=event_id.upper())).order_by("at", "pk")[:MOST_WHOLE]
    rows = {row.id: row for row in rows_of([*left, *live])}
    back = -1 if order.startswith("-") else 1

    def key(row: TimelineRow) -> Key:
        return (back * int(row.at.timestamp() * 1_000_000), back * row.id)

    return cut_page(list(rows.values()), key, **at).map(_in_series)


def without_sightings(entries: QuerySet[Entry]) -> QuerySet[Entry]:
    """Return entries without repeated sightings of an event, for overviews. The event's own page lists all machines
    that saw it.
    """
    return entries.exclude(kind=EntryKind.EVENT_SIGHTED.value)


def for_set(*, set_id: int, **at: Unpack[At]) -> Page[TimelineRow]:
    """Return a page of a set's timeline, newest first, including sets merged into it and without repeated sightings.
    Three queries.
    """
    sets = with_merged(set_id)
    entries = without_sightings(visible(Entry).filter(availability_set__in=sets))
    if len(sets) > 1 and isinstance(entries, IndexScanRows):
        entries = entries.near(IndexRange("availability_set", sets))
    return _page(entries, **at)


def for_machine(*, machine_id: int, **at: Unpack[At]) -> Page[TimelineRow]:
    """Return a page of a machine's timeline, newest first. Two queries."""
    return _page(visible(Entry).filter(machine_id=machine_id), **at)


def for_cache(*, cache_id: int, **at: Unpack[At]) -> Page[TimelineRow]:
    """Return a page of a cache's timeline, newest first. Two queries."""
    return _page(visible(Entry).filter(cache_id=cache_id), **at)


def fleet(*, entries: QuerySet[Entry] | None = None, **at: Unpack[OrderedAt]) -> Page[TimelineRow]:
    """Return a page of the fleet's timeline, newest first. `entries` is a filtered queryset (see
    `filters.EntryFilter`); by default all entries except repeated sightings.

    Two queries.
    """
    return _page(without_sightings(visible(Entry)) if entries is None else entries, **at)


def without_accounts(**at: Unpack[OrderedAt]) -> Page[TimelineRow]:
    """Return a page of the fleet's timeline without entries about users and their settings. Two queries."""
    accounts = [kind.value for kind in kinds_of("Accounts")]
    return fleet(entries=without_sightings(visible(Entry)).exclude(kind__in=accounts), **at)


# Feed of the streams: entries in the order in which their transactions can no longer be overtaken.


# (era, xid, id).
Cursor = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry with its cursor in the feed."""

    cursor: Cursor
    row: TimelineRow


def newest_cursor() -> Cursor:
    """Return the cursor after which a stream receives only new entries, just below the current horizon."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NEWEST_ERA}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1")
        era, xid = cursor.fetchone() or (0, 0)
    # All entries of that transaction count as sent.
    return (int(era), int(xid), 2**62)


def entries_after(*, cursor: Cursor, limit: int = 500) -> list[FeedEntry]:
    """Return up to `limit` entries after the cursor and below the horizon of the database snapshot, oldest first. One
    query.

    All transactions below the horizon have ended, so no entry can still appear before one that was already sent.
    """
    newest = Subquery(visible(Entry).order_by("-era").values("era")[:1])
    behind = TupleGreaterThan(Tuple("era", "xid", "id"), cursor)
    below = visible(Entry).filter(behind, TupleLessThan(Tuple("era", "xid"), (newest, HORIZON)))
    return _feed(with_subjects(below).order_by("era", "xid", "id")[:limit])


def visible_entries(ids: Collection[int]) -> list[FeedEntry]:
    """Return those of these entries (row ids) that the reader may see. One query, or two if entries contain names."""
    return _feed(with_subjects(visible(Entry).filter(pk__in=ids)))


def _feed(found: Iterable[Entry]) -> list[FeedEntry]:
    entries = list(found)
    rows = rows_of(entries)
    return [FeedEntry((entry.era, entry.xid, entry.pk), row) for entry, row in zip(entries, rows, strict=True)]


# Timelines for reading: the entries of one series share one line.


# A row and, if it begins a series, all entries of the series.
Told = tuple[TimelineRow, tuple[TimelineRow, ...]]


def by_series(rows: Iterable[TimelineRow]) -> list[Told]:
    """Group rows by series, in the order of the first row of each series. A row without a series is a group."""
    found = grouped((("series", row.series.id) if row.series else ("row", row.id), row) for row in rows)
    return [(members[0], tuple(members) if members[0].series else ()) for members in found.values()]
