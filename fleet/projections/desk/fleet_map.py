"""The fleet on one page: every set and every cache by service, each with the worst that is known of it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from django.db.models import QuerySet

from fleet.domain.desk import WORST_FIRST, Glance, worst
from fleet.domain.reason import Reason
from fleet.models import AvailabilitySet
from fleet.projections.desk.cells import CacheCell, SetCell, by_glance, cache_cells, set_cells

# More values of one kind than this are not offered for choice; they can be typed.
MOST_CHOICES = 60


@dataclass(frozen=True, slots=True)
class ServiceGroup:
    """Sets and caches of one service, by name; `service` is empty where none is stated."""

    service: str
    sets: tuple[SetCell, ...]
    caches: tuple[CacheCell, ...]

    @property
    def counts(self) -> tuple[tuple[Glance, int], ...]:
        """How many stand how, the worst first."""
        return by_glance((*self.sets, *self.caches))

    @property
    def size(self) -> int:
        return len(self.sets) + len(self.caches)

    @property
    def title(self) -> Reason:
        counts = [[glance.value, count] for glance, count in self.counts]
        return Reason("service-at-a-glance", name=self.service, counts=counts)

    def worst_first(self, most: int) -> "ServiceGroup":
        """The same; of more than `most` sets and caches those that stand worst, sets before caches."""
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
    def glance(self) -> Glance:
        return worst([*(cell.glance for cell in self.sets), *(cache.glance for cache in self.caches)])


@dataclass(frozen=True, slots=True)
class MapFilter:
    """What the map is to show; what is empty leaves everything. Values are compared without case.

    `presence`: at least one machine is so present; `type`: an open event is of this type; `q` looks into names.
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
        """Whatever its state."""
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
        """Whatever its state. What only a set can be leaves no cache."""
        of_sets = (self.subscription, self.resource_group, self.region, self.presence, self.type, self.kind)
        return not any(of_sets) and _same(self.service, cell.service) and self.q.casefold() in cell.host.casefold()


@dataclass(frozen=True, slots=True)
class FleetMap:
    """What the filter leaves, services in trouble first, and how many there are of all.

    `counts` are of all that the filter leaves but for its state. `choices` are the values that each filter can have,
    at most `MOST_CHOICES`, of the whole fleet.
    """

    groups: tuple[ServiceGroup, ...]
    counts: tuple[tuple[Glance, int], ...]
    choices: Mapping[str, tuple[str, ...]]
    total: int
    server_time: datetime = field(compare=False)

    @property
    def shown(self) -> int:
        return sum(len(group.sets) for group in self.groups)

    @property
    def cells(self) -> tuple[SetCell, ...]:
        """The sets one after the other, the worst first."""
        found = [cell for group in self.groups for cell in group.sets]
        return tuple(sorted(found, key=lambda cell: (WORST_FIRST[cell.glance], cell.due_at is None, cell.due_at)))


def fleet_map(
    *, now: datetime, chosen: MapFilter | None = None, sets: QuerySet[AvailabilitySet] | None = None
) -> FleetMap:
    """Every set and cache that the filter leaves. Eight queries at any size; `sets` bounds what is read."""
    chosen = chosen or MapFilter()
    everything = set_cells(now=now, sets=sets)
    caches = cache_cells(now=now)
    any_state = replace(chosen, state="")
    left = [cell for cell in everything if any_state.leaves_set(cell)] if any_state.any else everything
    beside = [cache for cache in caches if any_state.leaves_cache(cache)]
    in_state = partial(_in_state, chosen.state)
    return FleetMap(
        groups=_grouped(filter(in_state, left), filter(in_state, beside)),
        counts=by_glance((*left, *beside)),
        choices=_choices(everything),
        total=len(everything),
        server_time=now,
    )


def _in_state(state: str, cell: SetCell | CacheCell) -> bool:
    return _same(state, cell.glance.value)


def _grouped(sets: Iterable[SetCell], caches: Iterable[CacheCell]) -> tuple[ServiceGroup, ...]:
    """By service, those in trouble first; what belongs to no service comes last among its like."""
    in_service: dict[str, list[SetCell]] = defaultdict(list)
    beside: dict[str, list[CacheCell]] = defaultdict(list)
    spelled: dict[str, str] = {}
    for cell in sets:
        in_service[spelled.setdefault(cell.service.casefold(), cell.service)].append(cell)
    for cache in caches:
        beside[spelled.setdefault(cache.service.casefold(), cache.service)].append(cache)
    groups = [ServiceGroup(name, tuple(in_service[name]), tuple(beside[name])) for name in spelled.values()]
    return tuple(sorted(groups, key=lambda one: (WORST_FIRST[one.glance], one.service == "", one.service.casefold())))


def _choices(cells: Iterable[SetCell]) -> dict[str, tuple[str, ...]]:
    found: dict[str, Counter[str]] = {
        name: Counter() for name in ("service", "subscription", "resource_group", "region", "type")
    }
    several: tuple[tuple[str, Callable[[SetCell], Iterable[str]]], ...] = (
        ("service", lambda cell: (cell.service,)),
        ("subscription", lambda cell: (cell.subscription,)),
        ("resource_group", lambda cell: (cell.resource_group,)),
        ("region", lambda cell: cell.regions),
        ("type", lambda cell: cell.types),
    )
    for cell in cells:
        for name, values in several:
            found[name].update(value for value in values(cell) if value)
    return {
        name: tuple(sorted((value for value, _ in counted.most_common(MOST_CHOICES)), key=str.casefold))
        for name, counted in found.items()
    }


def _same(wanted: str, is_so: str) -> bool:
    return not wanted or wanted.casefold() == is_so.casefold()


def _among(wanted: str, values: Iterable[str]) -> bool:
    return not wanted or wanted.casefold() in map(str.casefold, values)
