"""Fleet map: every set and cache with the worst of its current states."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Min, Q, QuerySet

from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.desk import WORST_FIRST, StateFacts, WorstState, worst, worst_state_of_cache, worst_state_of_set
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Cache, Coverage, Maintenance, ScheduledEvent
from fleet.projections.caches.maintenances import CacheRef
from fleet.projections.counts import SetCounts, counts_of_sets, is_live, last_poll
from fleet.projections.events.rows import OPEN, needs_decision
from fleet.projections.sets import SetNumbers, machine_names
from fleet.projections.visibility import listed_sets, visible

UNDER_WAY = (MaintenanceStatus.UNDER_WAY, MaintenanceStatus.FAILED_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCell(SetNumbers):
    """One set with its open events (without drills) and its worst state.

    `due_at` is the earliest NotBefore of the events that need a decision.
    """

    regions: tuple[str, ...]
    undecided: int
    started: int
    scheduled: int
    types: tuple[str, ...]
    due_at: datetime | None
    glance: WorstState

    @property
    def title(self) -> Reason:
        live, total = self.presence.live, self.presence.total
        return Reason(
            "set-at-a-glance",
            name=self.label,
            glance=self.glance.value,
            live=live,
            total=total,
            without_agent=self.without_agent,
        )


@dataclass(frozen=True, slots=True)
class CacheCell(CacheRef):
    """One cache; `service` is the cache's own service, else the one that the sets of all its listeners share."""

    service: str
    listening: int
    glance: WorstState

    @property
    def title(self) -> Reason:
        return Reason("cache-at-a-glance", name=self.name, glance=self.glance.value, listening=self.listening)


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
        facts = from_row(StateFacts, counted.presence, without_agent=counted.without_agent, **numbers)
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
                glance=worst_state_of_set(facts),
            )
        )
    return tuple(found)


def _events(scope: Mapping[str, Any], *, now: datetime) -> dict[int, dict[str, Any]]:
    """Return the facts about open events of each set (row id): numbers by state, first due time, and types. One
    query.
    """
    undecided = Q(undecided_now=True)
    counted = (
        visible(ScheduledEvent)
        .filter(**scope, status__in=OPEN, drill=False)
        .annotate(undecided_now=needs_decision(now=now))
        .values("availability_set")
        .annotate(
            undecided=Count("pk", filter=undecided),
            started=Count("pk", filter=Q(status=EventStatus.STARTED.value)),
            scheduled=Count("pk", filter=Q(status=EventStatus.SCHEDULED.value)),
            due_at=Min("not_before", filter=undecided),
            types=ArrayAgg("event_type", distinct=True),
        )
        .order_by()
    )
    return {row["availability_set"]: dict(row) for row in counted}


def cache_cells(*, now: datetime, caches: QuerySet[Cache] | None = None) -> tuple[CacheCell, ...]:
    """Return the cells of caches by host. Three queries."""
    rows = visible(Cache) if caches is None else caches
    scope: dict[str, Any] = {} if caches is None else {"cache__in": rows}
    active: dict[int, Counter[str]] = defaultdict(Counter)
    statuses = [status.value for status in ACTIVE]
    for cache_id, status in visible(Maintenance).filter(**scope, status__in=statuses).values_list("cache", "status"):
        active[cache_id]["under_way" if status in UNDER_WAY else "announced"] += 1
    heard: dict[int, Counter[str]] = defaultdict(Counter)
    services: dict[int, set[str]] = defaultdict(set)
    listeners = (
        visible(Coverage)
        .filter(**scope, until=None)
        .alias(polled=last_poll("machine__"))
        .values("cache", "state", "machine__availability_set__service")
        .annotate(count=Count("pk"), live=Count("pk", filter=is_live(now=now, machine="machine__")))
        .order_by()
    )
    for row in listeners:
        services[row["cache"]].add(row["machine__availability_set__service"])
        heard[row["cache"]]["listening"] += row["live"] if row["state"] == "subscribed" else 0
        heard[row["cache"]]["unsupported"] += row["count"] if row["state"] == "unsupported" else 0
    found = []
    for pk, host, service in rows.order_by("host").values_list("pk", "host", "service"):
        shared = services[pk].pop() if len(services[pk]) == 1 else ""
        counts = heard[pk]
        found.append(
            CacheCell(
                id=pk,
                host=host,
                service=service or shared,
                listening=counts["listening"],
                glance=worst_state_of_cache(
                    announced=active[pk]["announced"],
                    under_way=active[pk]["under_way"],
                    listening=counts["listening"],
                    unsupported=counts["unsupported"],
                ),
            )
        )
    return tuple(found)


def by_glance(cells: Iterable[SetCell | CacheCell]) -> tuple[tuple[WorstState, int], ...]:
    counted = Counter(cell.glance for cell in cells)
    return tuple((glance, counted[glance]) for glance in WorstState if counted[glance])


# The fleet on one page: every set and cache by service, each with its worst known state.


# A filter with more values than this offers no choices; values can be typed.
MOST_CHOICES = 60


@dataclass(frozen=True, slots=True)
class ServiceGroup:
    """Sets and caches of one service, by name; `service` is empty for those without a service."""

    service: str
    sets: tuple[SetCell, ...]
    caches: tuple[CacheCell, ...]

    @property
    def counts(self) -> tuple[tuple[WorstState, int], ...]:
        """Return the number of sets and caches in each state, the worst first."""
        return by_glance((*self.sets, *self.caches))

    @property
    def size(self) -> int:
        return len(self.sets) + len(self.caches)

    @property
    def title(self) -> Reason:
        counts = [[glance.value, count] for glance, count in self.counts]
        return Reason("service-at-a-glance", name=self.service, counts=counts)

    def worst_first(self, most: int) -> "ServiceGroup":
        """Return the group limited to `most` sets and caches in the worst states, sets before caches."""
        if self.size <= most:
            return self
        whole: list[SetCell | CacheCell] = [*self.sets, *self.caches]
        cells = sorted(whole, key=lambda cell: WORST_FIRST[cell.glance])[:most]
        return replace(
            self,
            sets=tuple(cell for cell in cells if isinstance(cell, SetCell)),
            caches=tuple(cell for cell in cells if isinstance(cell, CacheCell)),
        )

    @property
    def glance(self) -> WorstState:
        return worst([*(cell.glance for cell in self.sets), *(cache.glance for cache in self.caches)])


@dataclass(frozen=True, slots=True)
class MapFilter:
    """Filter of the fleet map. Empty fields match everything, and case is ignored.

    `presence` matches sets with at least one such machine, `type` those with such an open event. `q` searches in names.
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

    def leaves_set(self, cell: SetCell) -> bool:
        """Return whether a set matches all filters except the one by state."""
        return (
            all(
                _same(getattr(self, name), getattr(cell, name))
                for name in ("service", "subscription", "resource_group", "kind")
            )
            and _among(self.region, cell.regions)
            and _among(self.type, cell.types)
            and _among(self.presence, [presence.value for presence, _ in cell.presence.parts()])
            and any(self.q.casefold() in name.casefold() for name in (cell.name, *cell.machine_names))
        )

    def leaves_cache(self, cell: CacheCell) -> bool:
        """Return whether a cache matches all filters except the one by state. A filter for sets only matches no
        cache.
        """
        of_sets = (self.subscription, self.resource_group, self.region, self.presence, self.type, self.kind)
        return not any(of_sets) and _same(self.service, cell.service) and self.q.casefold() in cell.host.casefold()


@dataclass(frozen=True, slots=True)
class FleetMap:
    """Services that match the filter, the worst state first, and totals.

    `counts` ignore the filter by state. `choices` are the possible values of each filter in the whole fleet, at most
    `MOST_CHOICES`.
    """

    groups: tuple[ServiceGroup, ...]
    counts: tuple[tuple[WorstState, int], ...]
    choices: Mapping[str, tuple[str, ...]]
    total: int
    server_time: datetime = field(compare=False)

    @property
    def shown(self) -> int:
        return sum(len(group.sets) for group in self.groups)

    @property
    def cache_count(self) -> int:
        return sum(len(group.caches) for group in self.groups)

    @property
    def cells(self) -> tuple[SetCell, ...]:
        """Return all sets of all services in one list, the worst state first."""
        found = [cell for group in self.groups for cell in group.sets]
        return tuple(sorted(found, key=lambda cell: (WORST_FIRST[cell.glance], cell.due_at is None, cell.due_at)))


def fleet_map(*, now: datetime, chosen: MapFilter | None = None) -> FleetMap:
    """Return all sets and caches that match the filter `chosen`. Eight queries for any number of sets."""
    chosen = chosen or MapFilter()
    everything = set_cells(now=now)
    any_state = replace(chosen, state="")
    left = [cell for cell in everything if any_state.leaves_set(cell)] if any_state.any else everything
    caches = [cache for cache in cache_cells(now=now) if any_state.leaves_cache(cache)]
    return FleetMap(
        groups=_grouped(
            (cell for cell in left if _same(chosen.state, cell.glance.value)),
            (cache for cache in caches if _same(chosen.state, cache.glance.value)),
        ),
        counts=by_glance((*left, *caches)),
        choices=_choices(everything),
        total=len(everything),
        server_time=now,
    )


def _grouped(sets: Iterable[SetCell], caches: Iterable[CacheCell]) -> tuple[ServiceGroup, ...]:
    """Return sets and caches grouped by service, the worst state first. In each state, the group without a service
    comes last.
    """
    in_service: dict[str, list[SetCell]] = defaultdict(list)
    caches_of_services: dict[str, list[CacheCell]] = defaultdict(list)
    spelled: dict[str, str] = {}
    for cell in sets:
        in_service[spelled.setdefault(cell.service.casefold(), cell.service)].append(cell)
    for cache in caches:
        caches_of_services[spelled.setdefault(cache.service.casefold(), cache.service)].append(cache)
    groups = [ServiceGroup(name, tuple(in_service[name]), tuple(caches_of_services[name])) for name in spelled.values()]
    return tuple(sorted(groups, key=lambda one: (WORST_FIRST[one.glance], one.service == "", one.service.casefold())))


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
        found[name] = tuple(sorted((value for value, _ in counted.most_common(MOST_CHOICES)), key=str.casefold))
    return found


def _same(wanted: str, is_so: str) -> bool:
    return not wanted or wanted.casefold() == is_so.casefold()


def _among(wanted: str, values: Iterable[str]) -> bool:
    return not wanted or wanted.casefold() in map(str.casefold, values)
