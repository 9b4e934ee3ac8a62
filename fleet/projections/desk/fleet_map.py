"""Fleet map: every set and cache with the worst of its current states."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, F, Min, Q, QuerySet

from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.desk import (
    WORST_FIRST,
    CacheState,
    StateFacts,
    WorstState,
    worst,
    worst_state_of_cache,
    worst_state_of_set,
)
from fleet.domain.reasons import Reason
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Cache, Coverage, Maintenance, ScheduledEvent
from fleet.projections.caches.maintenances import CacheRef
from fleet.projections.counts import SetCounts, counts_of_sets, is_live, last_poll
from fleet.projections.events.rows import OPEN, needs_decision
from fleet.projections.sets import SetNumbers, machine_names
from fleet.projections.visibility import listed_sets, visible

UNDER_WAY = (MaintenanceStatus.UNDER_WAY, MaintenanceStatus.FAILED_OVER)
State = TypeVar("State", WorstState, CacheState)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCell(SetNumbers):
    """One set with its open events (without drills) and its worst state.

    `due_at` is the earliest NotBefore of the events that need a decision. `next_type` and `next_at` are the type and
    NotBefore of the next event to start; if all have started, the type of one of them, and None.
    """

    regions: tuple[str, ...]
    undecided: int
    started: int
    scheduled: int
    types: tuple[str, ...]
    due_at: datetime | None
    next_type: str
    next_at: datetime | None
    state: WorstState

    @property
    def title(self) -> Reason:
        numbers = {"live": self.presence.live, "total": self.presence.total, "without_agent": self.without_agent}
        return Reason("set-on-map", name=self.label, worst=self.state.value, **numbers)


@dataclass(frozen=True, slots=True)
class CacheCell(CacheRef):
    """One cache; `service` is the cache's own service, else the one that the sets of all its listeners share."""

    service: str
    listening: int
    state: CacheState

    @property
    def title(self) -> Reason:
        return Reason("cache-on-map", name=self.name, worst=self.state.value, listening=self.listening)


def set_cells(*, now: datetime, sets: QuerySet[AvailabilitySet] | None = None) -> tuple[SetCell, ...]:
    """Return the cells of sets by name, without sets that were merged into another. Eight queries, or nine if
    reconciling is overdue.
    """
    rows = listed_sets(sets)
    scope: dict[str, Any] = {} if sets is None else {"availability_set__in": rows}
    machines = counts_of_sets(scope, now=now)
    names = machine_names(**scope)
    events = _events(scope, now=now)
    columns = ("kind", "name", "name_suffix", "service", "subscription", "resource_group")
    found = []
    for row in rows.order_by("name", "pk").values("pk", *columns):
        counted, open_now = machines.get(row["pk"], SetCounts()), events.get(row["pk"], {})
        numbers = {name: open_now.get(name, 0) for name in ("undecided", "started", "scheduled")}
        present = {name: getattr(counted.presence, name) for name in ("live", "late", "silent", "expected")}
        facts = StateFacts(**present, **numbers, without_agent=counted.without_agent)
        found.append(
            SetCell(
                id=row["pk"],
                **{name: row[name] for name in columns},
                machine_names=names.get(row["pk"], ()),
                regions=counted.regions,
                presence=counted.presence,
                without_agent=counted.without_agent,
                **numbers,
                types=tuple(filter(None, open_now.get("types", ()))),
                due_at=open_now.get("due_at"),
                next_type=open_now.get("next_type") or "",
                next_at=open_now.get("next_at"),
                state=worst_state_of_set(facts),
            )
        )
    return tuple(found)


def _events(scope: Mapping[str, Any], *, now: datetime) -> dict[int, dict[str, Any]]:
    """Return the facts about open events of each set (row id): numbers by state, first due time, types, and the next
    event. One query.
    """
    undecided, announced = Q(undecided_now=True), Q(status=EventStatus.SCHEDULED.value)
    rows = visible(ScheduledEvent).filter(**scope, status__in=OPEN, drill=False)
    of_sets = rows.annotate(undecided_now=needs_decision(now=now)).order_by().values("availability_set")
    counted = of_sets.annotate(
        undecided=Count("pk", filter=undecided),
        started=Count("pk", filter=Q(status=EventStatus.STARTED.value)),
        scheduled=Count("pk", filter=announced),
        due_at=Min("not_before", filter=undecided),
        types=ArrayAgg("event_type", distinct=True),
        next_at=Min("not_before", filter=announced),
    )
    # SCHEDULED comes before STARTED.
    in_order = ArrayAgg("event_type", order_by=("status", "not_before", "pk"))
    found = counted.alias(in_order=in_order).annotate(next_type=F("in_order__0"))
    return {row["availability_set"]: dict(row) for row in found}


def cache_cells(*, now: datetime, caches: QuerySet[Cache] | None = None) -> tuple[CacheCell, ...]:
    """Return the cells of caches by host. Three queries."""
    rows = visible(Cache) if caches is None else caches
    scope: dict[str, Any] = {} if caches is None else {"cache__in": rows}
    begun = Q(status__in=[status.value for status in UNDER_WAY])
    operations = visible(Maintenance).filter(**scope, status__in=[status.value for status in ACTIVE]).order_by()
    active = operations.values("cache").annotate(
        under_way=Count("pk", filter=begun), announced=Count("pk", filter=~begun)
    )
    newest = visible(Coverage).filter(**scope, until=None).alias(polled=last_poll("machine__")).order_by()
    heard = newest.values("cache").annotate(
        listening=Count("pk", filter=Q(state="subscribed") & is_live(now=now, machine="machine__")),
        unsupported=Count("pk", filter=Q(state="unsupported")),
        services=ArrayAgg("machine__availability_set__service", distinct=True),
    )
    known: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in [*active, *heard]:
        known[row["cache"]] |= row
    found = []
    for pk, host, service in rows.order_by("host").values_list("pk", "host", "service"):
        numbers = {name: known[pk].get(name, 0) for name in ("announced", "under_way", "listening", "unsupported")}
        services = known[pk].get("services", [])
        shared = services[0] if len(services) == 1 else ""
        found.append(CacheCell(pk, host, service or shared, numbers["listening"], worst_state_of_cache(**numbers)))
    return tuple(found)


# The fleet on one page: every set and cache in groups, each with its worst known state.


# A filter with more values than this offers no choices; values can be typed.
MOST_CHOICES = 60
# In a filter: sets for which no value is stated.
NOT_STATED = "-"
# Values by which sets can be grouped, the usual one first. Caches only have a service.
DIMENSIONS = ("service", "region", "resource_group")


@dataclass(frozen=True, slots=True)
class MapGroup:
    """Sets and caches of one service (or other dimension), by name; `name` is empty where none is stated."""

    name: str
    sets: tuple[SetCell, ...]
    caches: tuple[CacheCell, ...]

    @property
    def set_counts(self) -> tuple[tuple[WorstState, int], ...]:
        """Return the number of sets in each state, the worst first."""
        return _counted(self.sets, WorstState)

    @property
    def cache_counts(self) -> tuple[tuple[CacheState, int], ...]:
        """Return the number of caches in each state, the worst first."""
        return _counted(self.caches, CacheState)

    @property
    def size(self) -> int:
        return len(self.sets) + len(self.caches)

    @property
    def title(self) -> Reason:
        of_sets, of_caches = (
            [[state.value, count] for state, count in counts] for counts in (self.set_counts, self.cache_counts)
        )
        return Reason("group-on-map", name=self.name, of_sets=of_sets, of_caches=of_caches)

    def worst_first(self, most: int) -> "MapGroup":
        """Return the group limited to `most` sets and caches in the worst states, sets before caches."""
        if self.size <= most:
            return self
        whole: list[SetCell | CacheCell] = [*self.sets, *self.caches]
        cells = sorted(whole, key=lambda cell: WORST_FIRST[cell.state.value])[:most]
        sets = tuple(cell for cell in cells if isinstance(cell, SetCell))
        return replace(self, sets=sets, caches=tuple(cell for cell in cells if isinstance(cell, CacheCell)))

    @property
    def state(self) -> WorstState:
        return worst([*(cell.state for cell in self.sets), *(cache.state for cache in self.caches)])


def _counted(cells: Iterable[Any], states: type[State]) -> tuple[tuple[State, int], ...]:
    """Return the number of cells in each of these states, without states that have none."""
    counts = Counter(cell.state for cell in cells)
    return tuple((state, counts[state]) for state in states if counts[state])


@dataclass(frozen=True, slots=True)
class MapFilter:
    """Filter of the fleet map. Empty fields match everything, and case is ignored.

    `presence` matches sets with at least one such machine, `type` those with such an open event. `q` searches in names.
    The kind `cache` matches caches alone; `state` matches sets, with this kind caches. `-` matches objects that state
    no value.
    """

    service: str = ""
    subscription: str = ""
    resource_group: str = ""
    region: str = ""
    presence: str = ""
    type: str = ""
    kind: str = ""
    state: str = ""
    q: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> "MapFilter":
        return cls(**{name: asked.get(name, "").strip() for name in cls.__dataclass_fields__})

    @property
    def any(self) -> bool:
        return any(getattr(self, name) for name in self.__dataclass_fields__)

    @property
    def of_caches(self) -> bool:
        return self.kind == "cache"

    def leaves_set(self, cell: SetCell) -> bool:
        """Return whether a set matches all filters except the one by state."""
        names = ("service", "subscription", "resource_group", "kind")
        return (
            all(_same(getattr(self, name), getattr(cell, name)) for name in names)
            and _among(self.region, cell.regions)
            and _among(self.type, cell.types)
            and _among(self.presence, [presence.value for presence, _ in cell.presence.parts()])
            and any(self.q.casefold() in name.casefold() for name in (cell.name, *cell.machine_names))
        )

    def leaves_cache(self, cell: CacheCell) -> bool:
        """Return whether a cache matches all filters except the one by state. A filter for sets only matches no
        cache.
        """
        of_sets = {self.subscription, self.resource_group, self.region, self.presence, self.type}
        if of_sets - {"", NOT_STATED} or (self.kind and not self.of_caches):
            return False
        return _same(self.service, cell.service) and self.q.casefold() in cell.host.casefold()


@dataclass(frozen=True, slots=True)
class FleetMap:
    """Sets and caches that match the filter, and totals.

    `counts` and `cache_counts` ignore the filter by state. `choices` are the possible values of each filter in the
    whole fleet, at most `MOST_CHOICES`.
    """

    sets: tuple[SetCell, ...]
    caches: tuple[CacheCell, ...]
    counts: tuple[tuple[WorstState, int], ...]
    cache_counts: tuple[tuple[CacheState, int], ...]
    choices: Mapping[str, tuple[str, ...]]
    total: int
    server_time: datetime = field(compare=False)

    @property
    def size(self) -> int:
        return len(self.sets) + len(self.caches)

    @property
    def cells(self) -> tuple[SetCell, ...]:
        """Return all sets in one list, the worst state first."""
        order = sorted(self.sets, key=lambda cell: (WORST_FIRST[cell.state.value], cell.due_at is None, cell.due_at))
        return tuple(order)

    def grouped(self, by: str = "service") -> tuple[MapGroup, ...]:
        """Return the groups by one of `DIMENSIONS`, the worst state first. In each state, the group without a value
        comes last. A set in several regions is in the group of the first one.
        """
        groups: dict[str, tuple[str, list[SetCell], list[CacheCell]]] = {}
        for cell in self.sets:
            name = next(iter(OFFERED[by](cell)), "")
            groups.setdefault(name.casefold(), (name, [], []))[1].append(cell)
        for cache in self.caches:
            name = cache.service if by == "service" else ""
            groups.setdefault(name.casefold(), (name, [], []))[2].append(cache)
        found = [MapGroup(name, tuple(sets), tuple(caches)) for name, sets, caches in groups.values()]
        return tuple(sorted(found, key=lambda one: (WORST_FIRST[one.state.value], one.name == "", one.name.casefold())))


def fleet_map(*, now: datetime, chosen: MapFilter | None = None) -> FleetMap:
    """Return all sets and caches that match the filter `chosen`. Eight queries for any number of sets."""
    chosen = chosen or MapFilter()
    everything = set_cells(now=now)
    any_state = replace(chosen, state="")
    left = [cell for cell in everything if any_state.leaves_set(cell)] if any_state.any else everything
    caches = [cache for cache in cache_cells(now=now) if any_state.leaves_cache(cache)]
    return FleetMap(
        sets=tuple(cell for cell in left if _same(chosen.state, cell.state.value)),
        caches=tuple(
            one for one in caches if not chosen.state or (chosen.of_caches and _same(chosen.state, one.state.value))
        ),
        counts=_counted(left, WorstState),
        cache_counts=_counted(caches, CacheState),
        choices=_choices(everything),
        total=len(everything),
        server_time=now,
    )


# Values of a set that each filter offers as choices.
OFFERED: Mapping[str, Callable[[SetCell], Iterable[str]]] = {
    "service": lambda cell: (cell.service,),
    "subscription": lambda cell: (cell.subscription,),
    "resource_group": lambda cell: (cell.resource_group,),
    "region": lambda cell: cell.regions,
    "type": lambda cell: cell.types,
}


def _choices(cells: Sequence[SetCell]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, values in OFFERED.items():
        counted = Counter(value for cell in cells for value in values(cell) if value)
        found[name] = tuple(sorted(dict(counted.most_common(MOST_CHOICES)), key=str.casefold))
    return found


def _same(wanted: str, is_so: str) -> bool:
    return not wanted or wanted.casefold() == (is_so or NOT_STATED).casefold()


def _among(wanted: str, values: Iterable[str]) -> bool:
    return not wanted or wanted.casefold() in map(str.casefold, [*values] or [NOT_STATED])
