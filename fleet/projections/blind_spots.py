"""Blind spots of the fleet. They are stored for each set, and evaluated again for sets that have just changed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Unpack

from django.db.models import Count, Exists, F, Model, OuterRef, QuerySet, Sum, Value
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThanOrEqual
from django.db.models.functions import Coalesce, Collate, Upper

from fleet import models
from fleet.domain.blind_spots import RANKS, BlindSpot, Confidence
from fleet.domain.intake import PERIOD
from fleet.domain.reasons import Reason, from_json
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.shapes import InApi, from_row, grouped
from fleet.models.facts.blind_spots import load_findings
from fleet.models.timeline import numbering
from fleet.projections.caches.coverage import listener, with_machine
from fleet.projections.caches.maintenances import CacheRef
from fleet.projections.counts import is_live, last_poll, stale_sets
from fleet.projections.machines import agentless
from fleet.projections.pages import At, Key, Page, cut_page, cut_window
from fleet.projections.refs import MachineRef, SetRef, plain_name, set_ref
from fleet.projections.visibility import sees_set, used_caches, visible

OF_EVENTS = (QuarantineKind.EVENT.value, QuarantineKind.RULES.value)
# At most this many machines of one blind spot are named; the others are counted.
MOST_NAMED = 500
# At most this many recently changed sets are evaluated on reading. The others are shown as stored and counted as
# waiting.
MOST_JUDGED = 20
# At most this many blind spots of one kind are shown at once.
FIRST = 6
UNHEARD = "cache-unheard"
Stored = QuerySet[models.SetBlindSpot]


@dataclass(frozen=True, slots=True)
class BlindSpotRow:
    """One blind spot. `names` are the affected machines, at most `MOST_NAMED` of `count`; `machines` are those of them
    that have an agent.
    """

    code: str
    title: Reason
    certainty: Annotated[Confidence, "How sure it is."]
    reason: Annotated[Reason, "One or two sentences."]
    advice: Annotated[Reason, "What to do."]
    set: Annotated[SetRef | None, "Null for caches, and for machines that are in none yet."]
    machines: Annotated[tuple[MachineRef, ...], "Those concerned that have an agent, as far as `names` holds them."]
    names: Annotated[tuple[str, ...], "The machines concerned, at most 500 of `count`; the host of a cache."]
    count: Annotated[int, "How many machines are concerned."]
    cache: Annotated[CacheRef | None, "The cache that it is about."] = None
    # For quarantined rows.
    event_id: Annotated[str, "The quarantined event; else empty."] = ""
    # Distinguishes it from other blind spots of the same code in the same set.
    part: Annotated[str, InApi.OMITTED] = ""

    @property
    def where(self) -> Reason | str:
        """Return the set's name; for an unnamed set, the names of its machines, because a vmId means nothing to
        users.
        """
        if self.set is None or self.set.provisional:
            return Reason("some-machines", names=(*self.names, *("",) * (self.count - len(self.names))))
        return self.set.name


@dataclass(frozen=True, slots=True)
class SpotGroup:
    """All blind spots of one kind: their number (`count`), that of their machines, and the first `rows`."""

    code: str
    title: Reason
    count: int
    machines: int
    rows: tuple[BlindSpotRow, ...]

    @property
    def more(self) -> int:
        return self.count - len(self.rows)


@dataclass(frozen=True, slots=True)
class BlindSpots:
    """Blind spots by kind, the most dangerous first. `watched`: there is at least one agent. `waiting` counts changed
    sets that are not evaluated yet, and shown in their earlier state.
    """

    groups: tuple[SpotGroup, ...]
    watched: bool
    waiting: int
    server_time: datetime

    @property
    def spots(self) -> tuple[BlindSpotRow, ...]:
        """Return all blind spots that are shown, in one list."""
        return tuple(row for group in self.groups for row in group.rows)


@dataclass(frozen=True, slots=True)
class _Look:
    """Current blind spots.

    `rows` were computed in memory, `stored` are read from the database. `waiting` counts sets that are due for
    evaluation, `more_caches` the caches without a listener that are not in `rows`.
    """

    rows: tuple[BlindSpotRow, ...]
    stored: Stored
    waiting: int
    more_caches: int


def overview(*, now: datetime) -> BlindSpots:
    """Return the blind spots of the fleet by kind, with the first rows of each. Nineteen queries."""
    look = _look(now, caches=FIRST)
    counts = Counter(row.code for row in look.rows)
    counts.update({UNHEARD: look.more_caches} if look.more_caches else {})
    machines: Counter[str] = Counter()
    for row in look.rows:
        machines[row.code] += row.count
    for code, number, affected in look.stored.order_by().values_list("code").annotate(Count("pk"), Sum("count")):
        counts[code] += number
        machines[code] += affected
    codes = sorted(counts, key=RANKS.__getitem__)
    # Query even without codes, so that the number of queries is fixed.
    firsts = [_listed(look.stored.filter(rank=rank))[:FIRST] for rank in [RANKS[code] for code in codes] or [-1]]
    found = grouped((row.code, row) for row in [*look.rows, *_shaped(firsts[0].union(*firsts[1:], all=True))])
    groups = [
        SpotGroup(code, rows[0].title, counts[code], machines[code], _shortened(sorted(rows, key=_place)[:FIRST]))
        for code in codes
        # Rows that changed since they were counted may be missing.
        if (rows := found[code])
    ]
    return BlindSpots(tuple(groups), visible(models.Machine).filter(revoked_at=None).exists(), look.waiting, now)


def count(now: datetime) -> int:
    """Return the number of blind spots, with and without a set. Sixteen queries."""
    look = _look(now, caches=FIRST)
    return len(look.rows) + look.more_caches + look.stored.count()


def page(
    *,
    now: datetime,
    code: str = "",
    sets: Collection[int] | None = None,
    machines: Collection[int] | None = None,
    names: Collection[str] | None = None,
    **at: Unpack[At],
) -> Page[BlindSpotRow]:
    """Return a page of blind spots, the most dangerous first. Filters: `code`, sets and machines (row ids), and machine
    `names`.
    """
    plain = {plain_name(name) for name in names} if names is not None else None

    def wanted(row: BlindSpotRow) -> bool:
        return (
            (not code or row.code == code)
            and (sets is None or (row.set is not None and row.set.id in sets))
            and (machines is None or any(machine.id in machines for machine in row.machines))
            and (plain is None or any(plain_name(name) in plain for name in row.names))
        )

    some = code in ("", UNHEARD) and sets is None and machines is None
    # Read all caches only where few names are given.
    look = _look(now, caches=None if some and names is not None else 0, hosts=names)
    in_memory = [row for row in look.rows if wanted(row)]
    stored = look.stored.filter(rank=RANKS[code]) if code else look.stored
    stored = stored.filter(availability_set__any=list(sets)) if sets is not None else stored
    if machines is None and plain is None:

        def window(beyond: Key | None, onwards: bool, most: int) -> list[BlindSpotRow]:
            caches = _cache_window(now, beyond, onwards, most) if some else []
            return [*_window(stored, beyond, onwards, most), *caches]

        found = cut_window(in_memory, window, _place, like=(0, "", 0, ""), **at)
    else:
        # Few sets match, so all their rows are read.
        of_them = _listed(stored.filter(availability_set__any=_homes(machines, names)))
        found = cut_page(in_memory + [row for row in _shaped(of_them) if wanted(row)], _place, **at)
    return found.map(_shortened)


def _place(row: BlindSpotRow) -> Key:
    return (RANKS[row.code], row.set.name if row.set else "", row.set.id if row.set else 0, row.part)


KEY = ("rank", "set_name", "availability_set", "part")


def _listed(rows: Stored) -> Stored:
    return rows.select_related("availability_set").order_by(*KEY)


def _window(stored: Stored, beyond: Key | None, onwards: bool, most: int) -> Sequence[BlindSpotRow]:
    if beyond is not None:
        side = TupleGreaterThan if onwards else TupleLessThanOrEqual
        # The plain bound lets the index begin at the key.
        bound = {"rank__gte" if onwards else "rank__lte": beyond[0]}
        stored = stored.filter(side(Tuple(*KEY), beyond), **bound)
    rows = _listed(stored)
    return _shaped((rows if onwards else rows.reverse())[:most])


def _cache_window(now: datetime, beyond: Key | None, onwards: bool, most: int) -> list[BlindSpotRow]:
    """Return up to `most` caches without a listener after the key `beyond` (or before it, unless `onwards`), by host.
    They belong to no set. Two queries.
    """
    # The sort key of all of them among the other blind spots: (rank, set's name, set).
    rows, (here, there) = _unheard(now), ((RANKS[UNHEARD], "", 0), tuple(beyond or ())[:3])
    if there == here:
        rows = rows.filter(**{f"by_host__{'gt' if onwards else 'lte'}": (beyond or ())[3]})
    elif (there > here) == onwards:
        rows = rows.none()
    rows = rows if onwards else rows.reverse()
    return [_row(spot, None) for spot in _of_caches(list(rows[:most]), now)]


def _shaped(rows: Iterable[models.SetBlindSpot]) -> list[BlindSpotRow]:
    found = []
    for row in rows:
        ids = {"set_id": row.availability_set_id, "other_set": row.other_set_id}
        spot = from_row(BlindSpot, row, values=from_json(row.values), **ids)
        found.append(_row(spot, set_ref(row.availability_set)))
    return found


def _row(spot: BlindSpot, home: SetRef | None) -> BlindSpotRow:
    machines = tuple(map(MachineRef, spot.machine_ids, spot.names))
    cache = CacheRef(id=spot.cache_id, host=spot.names[0]) if spot.cache_id is not None else None
    return from_row(BlindSpotRow, spot, set=home, machines=machines, cache=cache)


def _shortened(rows: Sequence[BlindSpotRow]) -> tuple[BlindSpotRow, ...]:
    return tuple(replace(row, names=row.names[:MOST_NAMED], machines=row.machines[:MOST_NAMED]) for row in rows)


def _homes(machines: Collection[int] | None, names: Collection[str] | None) -> list[int]:
    """Return the row ids of the sets that contain these machines (row ids) or machines with these names, with or
    without an agent.
    """
    rows: list[QuerySet[Any]] = []
    if machines is not None:
        rows.append(visible(models.Machine).filter(pk__any=list(machines)))
    if names is not None:
        upper = [name.upper() for name in names]
        rows.append(visible(models.Machine).alias(upper=Upper("resource_name")).filter(upper__in=upper))
        rows.append(visible(models.InventoryMachine).alias(upper=Upper("name")).filter(upper__in=upper))
    return sorted({pk for each in rows for pk in each.values_list("availability_set", flat=True)} - {None})


def _look(now: datetime, *, caches: int | None = None, hosts: Collection[str] | None = None) -> _Look:
    """Return the current blind spots. `caches` limits how many caches without a listener are read, and the others are
    counted; None reads all. `hosts` limits them to these hosts in any case.
    """
    unheard = _unheard(now)
    if hosts is not None:
        unheard = unheard.filter(host__named=list(hosts))
    stale = stale_sets(now=now)
    judged = stale[:MOST_JUDGED]
    homes = {row.pk: set_ref(row) for row in visible(models.AvailabilitySet).filter(pk__any=judged)}
    rows = [
        _row(spot, homes[each.facts.set_id])
        for each in load_findings(list(homes), now=now)
        for spot in each.spots
        if spot.other_set is None or sees_set(spot.other_set)
    ]
    alone = agentless().filter(availability_set=None)
    names = list(alone.order_by("name", "pk").values_list("name", flat=True)[: MOST_NAMED + 1])
    first = list(unheard[:caches]) if caches != 0 else []
    of_no_set = [*_of_quarantine(), *_of_caches(first, now), *_of_waiting_and_quarantined(now)]
    if numbering().missing:
        of_no_set.append(BlindSpot("era-not-begun", Confidence.CERTAIN, None))
    of_no_set += _of_rows("no-agent", Confidence.CERTAIN, names, alone)
    rows += [_row(spot, None) for spot in sorted(of_no_set, key=lambda spot: RANKS[spot.code])]
    stored = visible(models.SetBlindSpot).exclude(availability_set__any=judged)
    more = unheard.count() - len(first) if caches and len(first) == caches else 0
    return _Look(tuple(rows), stored, len(stale) - len(judged), more)


def _of_waiting_and_quarantined(now: datetime) -> Iterator[BlindSpot]:
    """Yield the blind spots of machines that wait for admission, and of machines whose rows were quarantined within the
    last hour. One query, and another one for each with many machines.
    """
    waiting = visible(models.Admission).filter(admitted_at__isnull=True)
    within = visible(models.Machine).filter(presence__bounded_since__gt=now - PERIOD, revoked_at=None)
    both: dict[str, QuerySet[Any]] = {
        "waits-for-admission": waiting.annotate(titled=Coalesce("machine__resource_name", "resource_name")),
        "reports-quarantined": within.filter(presence__quarantined__gt=0).annotate(titled=F("resource_name")),
    }
    parts = [rows.order_by("titled", "pk").annotate(of=Value(code)) for code, rows in both.items()]
    one, other = (rows.values_list("of", "titled")[: MOST_NAMED + 1] for rows in parts)
    found = sorted(one.union(other, all=True))
    for code, rows in both.items():
        yield from _of_rows(code, Confidence.POSSIBLE, [name for of, name in found if of == code], rows)


def _of_rows(code: str, certainty: Confidence, names: Sequence[str], rows: QuerySet[Any]) -> Iterator[BlindSpot]:
    """Yield the blind spot of these rows, if there are any. `names` are the first of them, and are counted if they are
    not all.
    """
    if names:
        count = len(names) if len(names) <= MOST_NAMED else rows.count()
        yield BlindSpot(code, certainty, None, names=tuple(names[:MOST_NAMED]), count=count)


def _unheard(now: datetime) -> QuerySet[models.Cache]:
    """Return the caches to which no live machine listens, by host in code point order."""
    heard = visible(models.Coverage).filter(cache=OuterRef("pk"), until=None, state="subscribed")
    heard = heard.alias(polled=last_poll("machine__")).filter(is_live(now=now, machine="machine__"))
    return used_caches().filter(~Exists(heard)).alias(by_host=Collate("host", "C")).order_by("by_host")


def _of_caches(caches: Sequence[models.Cache], now: datetime) -> Iterator[BlindSpot]:
    """Yield the blind spots of these caches without a listener. One query."""
    newest = with_machine().filter(until=None, cache__any=[cache.pk for cache in caches])
    listeners = grouped((row.cache_id, listener(row, now=now)) for row in newest)
    for cache in caches:
        of_cache = listeners[cache.pk]
        if not any(row.listening for row in of_cache):
            # Why the agents that should listen do not, each once: the agent's own words, or its state.
            reasons = tuple(dict.fromkeys(row.reason or row.state for row in of_cache))
            values = {"supported": not any(row.state == "unsupported" for row in of_cache), "reasons": reasons}
            about: dict[str, Any] = {"names": (cache.host,), "count": 1, "part": cache.host, "cache_id": cache.pk}
            yield BlindSpot("cache-unheard", Confidence.CERTAIN, None, values=values, **about)


def _of_quarantine() -> Iterator[BlindSpot]:
    """Yield the blind spots of quarantined rows. One to three queries."""
    rows = list(visible(models.QuarantinedRow).order_by("what", "row_id"))

    def names(model: type[Model], column: str, *kinds: str) -> dict[int, str]:
        ids = [row.row_id for row in rows if row.what in kinds]
        return dict(visible(model).filter(pk__in=ids).values_list("pk", column)) if ids else {}

    events = names(models.ScheduledEvent, "event_id", *OF_EVENTS)
    hosts = names(models.Cache, "host", QuarantineKind.CACHE.value)
    named = {**dict.fromkeys(OF_EVENTS, events), QuarantineKind.CACHE.value: hosts}
    for row in rows:
        name = named.get(row.what, {}).get(row.row_id, str(row.row_id))
        event_id = events.get(row.row_id, "") if row.what in OF_EVENTS else ""
        values = {"what": row.what, "why": row.reason, "tries": row.tries}
        about: dict[str, Any] = {"names": (name,), "count": 1, "part": f"{row.what} {name}", "event_id": event_id}
        yield BlindSpot("set-aside", Confidence.CERTAIN, None, values=values, **about)
