"""Blind spots, as people see them: those of sets as they are kept, and judged anew where a set has just changed."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from django.db.models import Count, Exists, F, OuterRef, QuerySet, Value
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThanOrEqual
from django.db.models.functions import Coalesce, Collate, Upper

from fleet.domain.blind_spots.facts import BlindSpot, CacheFacts, Confidence, QuarantineFacts
from fleet.domain.blind_spots.find import RANKS, Named, elsewhere
from fleet.domain.intake import PERIOD
from fleet.domain.reasons import Reason, from_json
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.shapes import InApi, from_row
from fleet.models import (
    Admission,
    AvailabilitySet,
    Cache,
    Coverage,
    InventoryMachine,
    Machine,
    QuarantinedRow,
    ScheduledEvent,
    SetBlindSpot,
)
from fleet.models.facts.blind_spots import load_findings
from fleet.models.timeline import numbering
from fleet.projections.caches.coverage import ListenerRow, listener, with_machine
from fleet.projections.caches.maintenances import CacheRef
from fleet.projections.counts import is_live, last_poll, stale_sets
from fleet.projections.machines import agentless
from fleet.projections.pages import Key, Page, cut_page, cut_window
from fleet.projections.refs import MachineRef, SetRef, plain_name, set_ref
from fleet.projections.visibility import sees_set, visible

OF_EVENTS = (QuarantineKind.EVENT.value, QuarantineKind.RULES.value)
# So many machines of one are named; the others are counted.
MOST_NAMED = 500
# So many sets that have just changed are judged by whoever reads; more are shown as they were, and told.
MOST_JUDGED = 20
# So many of one kind are shown at once.
FIRST = 6
UNHEARD = "cache-unheard"
# Where caches stand among the others: (rank, set's name, set).
CACHE_PLACE = (RANKS[UNHEARD], "", 0)


@dataclass(frozen=True, slots=True)
class BlindSpotRow:
    """`names` are the machines concerned, at most `MOST_NAMED` of `count`; `machines` those among them that have an
    agent.
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
    # Of what is set aside.
    event_id: Annotated[str, "The event that is set aside; else empty."] = ""
    # What tells it from others of its code in its set.
    part: Annotated[str, InApi.OMITTED] = ""

    @property
    def where(self) -> Reason | str:
        """The set's name; of a set that nobody named it is the machines, because a vmId tells people nothing."""
        if self.set is None or self.set.provisional:
            return Reason("some-machines", names=(*self.names, *("",) * (self.count - len(self.names))))
        return self.set.name


@dataclass(frozen=True, slots=True)
class SpotGroup:
    """All blind spots of one kind, of which the first are shown."""

    code: str
    title: Reason
    count: int
    rows: tuple[BlindSpotRow, ...]

    @property
    def more(self) -> int:
        return self.count - len(self.rows)


@dataclass(frozen=True, slots=True)
class BlindSpots:
    """By kind, the most dangerous first. `watched`: there are agents at all; `waiting`: how many sets have changed and
    are shown as they were before.
    """

    groups: tuple[SpotGroup, ...]
    watched: bool
    waiting: int
    server_time: datetime

    @property
    def spots(self) -> tuple[BlindSpotRow, ...]:
        """Those that are shown."""
        return tuple(row for group in self.groups for row in group.rows)

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True)
class _Look:
    """Blind spots in memory, those of sets in the database, how many sets should have been judged and were not, and how
    many caches nobody listens to that are not among the rows.
    """

    rows: tuple[BlindSpotRow, ...]
    kept: QuerySet[SetBlindSpot]
    waiting: int
    more_caches: int


def overview(*, now: datetime) -> BlindSpots:
    """Every kind of blind spot of the fleet with the first of it, in nineteen queries."""
    look = _look(now, caches=FIRST)
    counts = Counter(row.code for row in look.rows)
    counts.update({UNHEARD: look.more_caches} if look.more_caches else {})
    counts.update(dict(look.kept.order_by().values_list("code").annotate(Count("pk"))))
    codes = sorted(counts, key=RANKS.__getitem__)
    # Of none, too: the same number of queries whatever there is.
    firsts = [_listed(look.kept.filter(rank=rank))[:FIRST] for rank in [RANKS[code] for code in codes] or [-1]]
    found: dict[str, list[BlindSpotRow]] = defaultdict(list)
    for row in look.rows:
        found[row.code].append(row)
    for row in _shaped(firsts[0].union(*firsts[1:], all=True)):
        found[row.code].append(row)
    groups = [
        SpotGroup(code, found[code][0].title, counts[code], _shortened(sorted(found[code], key=_place)[:FIRST]))
        for code in codes
        # What has just passed was counted a moment ago.
        if found[code]
    ]
    return BlindSpots(tuple(groups), visible(Machine).filter(revoked_at=None).exists(), look.waiting, now)


def count(*, now: datetime) -> int:
    """How many there are. Sixteen queries."""
    look = _look(now, caches=FIRST)
    return len(look.rows) + look.more_caches + look.kept.count()


def page(
    *,
    now: datetime,
    code: str = "",
    sets: Collection[int] | None = None,
    machines: Collection[int] | None = None,
    names: Collection[str] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[BlindSpotRow]:
    """Blind spots, the most dangerous first: those of this kind, of these sets and machines (ids), and of machines of
    these names.
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
    # All of them are read only where few are named.
    look = _look(now, caches=None if some and names is not None else 0, hosts=names)
    beside = [row for row in look.rows if wanted(row)]
    kept = look.kept.filter(rank=RANKS[code]) if code else look.kept
    kept = kept.filter(availability_set__any=list(sets)) if sets is not None else kept
    if machines is None and plain is None:

        def window(beyond: Key | None, onwards: bool, most: int) -> list[BlindSpotRow]:
            caches = _cache_window(now, beyond, onwards, most) if some else []
            return [*_window(kept, beyond, onwards, most), *caches]

        found = cut_window(beside, window, _place, like=(0, "", 0, ""), cursor=cursor, size=size)
    else:
        # Of few sets, so all of them are read.
        of_them = _listed(kept.filter(availability_set__any=_homes(machines, names)))
        found = cut_page(beside + [row for row in _shaped(of_them) if wanted(row)], _place, cursor=cursor, size=size)
    return found.map(_shortened)


def _place(row: BlindSpotRow) -> Key:
    return (RANKS[row.code], row.set.name if row.set else "", row.set.id if row.set else 0, row.part)


KEY = ("rank", "set_name", "availability_set", "part")


def _listed(rows: QuerySet[SetBlindSpot]) -> QuerySet[SetBlindSpot]:
    return rows.select_related("availability_set").order_by(*KEY)


def _window(kept: QuerySet[SetBlindSpot], beyond: Key | None, onwards: bool, most: int) -> Sequence[BlindSpotRow]:
    if beyond is not None:
        side = TupleGreaterThan if onwards else TupleLessThanOrEqual
        # The plain bound lets the index begin at the key.
        bound = {"rank__gte" if onwards else "rank__lte": beyond[0]}
        kept = kept.filter(side(Tuple(*KEY), beyond), **bound)
    rows = _listed(kept)
    return _shaped((rows if onwards else rows.reverse())[:most])


def _cache_window(now: datetime, beyond: Key | None, onwards: bool, most: int) -> list[BlindSpotRow]:
    """The same of caches to which nobody listens: of no set, by their hosts. Two queries."""
    rows, (here, there) = _unheard(now), (CACHE_PLACE, tuple(beyond or ())[:3])
    if there == here:
        rows = rows.filter(**{f"by_host__{'gt' if onwards else 'lte'}": (beyond or ())[3]})
    elif (there > here) == onwards:
        rows = rows.none()
    rows = rows if onwards else rows.reverse()
    return [_row(spot, None) for spot in elsewhere(caches=_caches(rows[:most], now))]


def _shaped(rows: Iterable[SetBlindSpot]) -> list[BlindSpotRow]:
    return [_row(_spot(one), set_ref(one.availability_set)) for one in rows]


def _spot(row: SetBlindSpot) -> BlindSpot:
    return from_row(
        BlindSpot,
        row,
        certainty=Confidence(row.certainty),
        set_id=row.availability_set_id,
        machine_ids=tuple(row.machine_ids),
        names=tuple(row.names),
        values=from_json(row.values),
        cache_id=None,
        event_id="",
        other_set=row.other_set_id,
    )


def _row(spot: BlindSpot, home: SetRef | None) -> BlindSpotRow:
    return from_row(
        BlindSpotRow,
        spot,
        set=home,
        machines=tuple(
            MachineRef(id=pk, resource_name=name) for pk, name in zip(spot.machine_ids, spot.names, strict=False)
        ),
        cache=CacheRef(id=spot.cache_id, host=spot.names[0]) if spot.cache_id is not None else None,
    )


def _shortened(rows: Sequence[BlindSpotRow]) -> tuple[BlindSpotRow, ...]:
    return tuple(
        replace(row, names=row.names[:MOST_NAMED], machines=row.machines[:MOST_NAMED])
        if len(row.names) > MOST_NAMED
        else row
        for row in rows
    )


def _homes(machines: Collection[int] | None, names: Collection[str] | None) -> list[int]:
    """The sets (row ids) of these machines (row ids), and of machines of these names, with an agent or without."""
    found: set[int | None] = set()
    if machines is not None:
        found |= set(visible(Machine).filter(pk__any=list(machines)).values_list("availability_set", flat=True))
    if names is not None:
        upper = [name.upper() for name in names]
        with_agent = visible(Machine).alias(upper=Upper("resource_name")).filter(upper__in=upper)
        without = visible(InventoryMachine).alias(upper=Upper("name")).filter(upper__in=upper)
        found |= set(with_agent.values_list("availability_set", flat=True))
        found |= set(without.values_list("availability_set", flat=True))
    return sorted(pk for pk in found if pk is not None)


def _look(now: datetime, *, caches: int | None = None, hosts: Collection[str] | None = None) -> _Look:
    """`caches`: so many of those to which nobody listens, the others are counted; all of them if nothing is said, or
    those of these `hosts`, in any case.
    """
    unheard = _unheard(now)
    if hosts is not None:
        unheard = unheard.filter(host__named=list(hosts))
    stale = stale_sets(now=now)
    judged = stale[:MOST_JUDGED]
    homes = {row.pk: set_ref(row) for row in visible(AvailabilitySet).filter(pk__any=judged)}
    rows = [
        _row(spot, homes[each.facts.set_id])
        for each in load_findings(list(homes), now=now)
        for spot in each.spots
        if spot.other_set is None or sees_set(spot.other_set)
    ]
    alone = agentless().filter(availability_set=None)
    called = Coalesce("machine__resource_name", "resource_name")
    waiting = visible(Admission).filter(admitted_at__isnull=True)
    waits, quarantined = _both_named(
        waiting.annotate(titled=called).order_by("titled", "pk"),
        _quarantined(now).annotate(titled=F("resource_name")).order_by("titled", "pk"),
    )
    beside = elsewhere(
        waiting=waits,
        quarantined=quarantined,
        alone=_named(alone.order_by("name", "pk"), "name"),
        caches=(first := _caches(unheard[:caches], now) if caches != 0 else []),
        quarantine=_quarantine(),
        era_missing=numbering().missing,
    )
    rows += [_row(spot, None) for spot in beside]
    kept = visible(SetBlindSpot).exclude(availability_set__any=judged)
    more = unheard.count() - len(first) if caches and len(first) == caches else 0
    return _Look(tuple(rows), kept, len(stale) - len(judged), more)


def _both_named(one: QuerySet[Any], other: QuerySet[Any]) -> tuple[Named, Named]:
    """By `titled`. One query, and one more where there are many."""
    parts = [rows.annotate(of=Value(place)).values_list("of", "titled") for place, rows in enumerate((one, other))]
    found = sorted(parts[0][: MOST_NAMED + 1].union(parts[1][: MOST_NAMED + 1], all=True))
    both = []
    for place, rows in enumerate((one, other)):
        names = tuple(name for of, name in found if of == place)
        both.append(Named(names[:MOST_NAMED], len(names) if len(names) <= MOST_NAMED else rows.count()))
    return both[0], both[1]


def _quarantined(now: datetime) -> QuerySet[Machine]:
    """The machines of which something was beyond their bounds within the hour."""
    within = visible(Machine).filter(presence__bounded_since__gt=now - PERIOD, revoked_at=None)
    return within.filter(presence__quarantined__gt=0)


def _named(rows: QuerySet[Any], column: str) -> Named:
    """Two queries, the second where there are many."""
    names = tuple(rows.values_list(column, flat=True)[: MOST_NAMED + 1])
    return Named(names[:MOST_NAMED], len(names) if len(names) <= MOST_NAMED else rows.count())


def _unheard(now: datetime) -> QuerySet[Cache]:
    """The caches to which no live machine listens, in the order of their hosts' code points."""
    heard = visible(Coverage).filter(cache=OuterRef("pk"), until=None, state="subscribed")
    heard = heard.alias(polled=last_poll("machine__")).filter(is_live(now=now, machine="machine__"))
    return visible(Cache).filter(~Exists(heard)).alias(by_host=Collate("host", "C")).order_by("by_host")


def _caches(rows: Iterable[Cache], now: datetime) -> list[CacheFacts]:
    """Two queries."""
    caches = list(rows)
    listeners: dict[int, list[ListenerRow]] = defaultdict(list)
    for row in with_machine().filter(until=None, cache__any=[cache.pk for cache in caches]):
        listeners[row.cache_id].append(listener(row, now=now))
    return [
        CacheFacts(
            cache_id=cache.pk,
            host=cache.host,
            listening=any(row.listening for row in listeners[cache.pk]),
            supported=not any(row.state == "unsupported" for row in listeners[cache.pk]),
            reasons=tuple(dict.fromkeys(row.reason or row.state for row in listeners[cache.pk])),
        )
        for cache in caches
    ]


def _quarantine() -> list[QuarantineFacts]:
    """One query, and two more where there is something."""
    rows = list(visible(QuarantinedRow).order_by("what", "row_id"))
    events = dict(
        visible(ScheduledEvent)
        .filter(pk__in=[row.row_id for row in rows if row.what in OF_EVENTS])
        .values_list("pk", "event_id")
        if rows
        else ()
    )
    hosts = dict(
        visible(Cache)
        .filter(pk__in=[row.row_id for row in rows if row.what == QuarantineKind.CACHE.value])
        .values_list("pk", "host")
        if rows
        else ()
    )
    named = {QuarantineKind.EVENT.value: events, QuarantineKind.RULES.value: events, QuarantineKind.CACHE.value: hosts}
    return [
        QuarantineFacts(
            what=row.what,
            name=named.get(row.what, {}).get(row.row_id, str(row.row_id)),
            why=row.reason,
            tries=row.tries,
            event_id=events.get(row.row_id, "") if row.what in OF_EVENTS else "",
        )
        for row in rows
    ]
