"""Sets and caches as cells of a map: each in numbers, with the worst that is known of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Min, Q, QuerySet

from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.desk import Glance, GlanceFacts, glance_of, glance_of_cache
from fleet.domain.reason import Reason
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Cache, Coverage, Machine, Maintenance, ScheduledEvent
from fleet.projections.counts import SetCounts, counts_of_sets, is_live, last_poll
from fleet.projections.desk.attention import needs_decision
from fleet.projections.events.rows import OPEN
from fleet.projections.refs import PresenceCounts, label_of
from fleet.projections.sight import seen

UNDER_WAY = (MaintenanceStatus.UNDER_WAY, MaintenanceStatus.FAILED_OVER)


@dataclass(frozen=True, slots=True)
class SetCell:
    """One set: its machines by presence, its open events (drills are none), and the worst of all that.

    `due_at` is the first NotBefore of what needs a decision.
    """

    id: int
    kind: str
    name: str
    apart: str
    service: str
    subscription: str
    resource_group: str
    machine_names: tuple[str, ...]
    regions: tuple[str, ...]
    presence: PresenceCounts
    without_agent: int
    undecided: int
    started: int
    scheduled: int
    types: tuple[str, ...]
    due_at: datetime | None
    glance: Glance

    @property
    def label(self) -> Reason | str:
        """As `SetRow.label`: of a set that nobody named it is its machines."""
        if self.kind != PROVISIONAL or not self.machine_names:
            return label_of(self.name, self.apart)
        return Reason("first-machine", names=list(self.machine_names))

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
class CacheCell:
    """One cache; `service` is its own, else that which the sets of all its listeners share."""

    id: int
    host: str
    service: str
    listening: int
    glance: Glance

    @property
    def name(self) -> str:
        return self.host.partition(".")[0]

    @property
    def title(self) -> Reason:
        return Reason("cache-at-a-glance", name=self.name, glance=self.glance.value, listening=self.listening)


def set_cells(*, now: datetime, sets: QuerySet[AvailabilitySet] | None = None) -> tuple[SetCell, ...]:
    """Sets by name, without those that were merged into another. Eight queries, one more where nobody reconciles."""
    rows = (seen(AvailabilitySet) if sets is None else sets).filter(merged_into=None)
    scope: dict[str, Any] = {} if sets is None else {"availability_set__in": rows}
    machines = counts_of_sets(scope, now=now)
    names: dict[int, list[str]] = defaultdict(list)
    unnamed = seen(Machine).filter(**scope, availability_set__kind=PROVISIONAL).order_by("resource_name", "pk")
    for set_id, name in unnamed.values_list("availability_set", "resource_name"):
        names[set_id].append(name)
    events = _events(scope, now=now)
    columns = ("kind", "name", "apart", "service", "subscription", "resource_group")
    found = []
    for row in rows.order_by("name", "pk").values("pk", *columns):
        counted, open_now = machines.get(row["pk"], SetCounts()), events.get(row["pk"], {})
        presence = counted.presence
        facts = GlanceFacts(
            live=presence.live,
            late=presence.late,
            silent=presence.silent,
            expected=presence.expected,
            without_agent=counted.without_agent,
            undecided=open_now.get("undecided", 0),
            started=open_now.get("started", 0),
            scheduled=open_now.get("scheduled", 0),
        )
        found.append(
            SetCell(
                id=row["pk"],
                **{name: row[name] for name in columns},
                machine_names=tuple(names.get(row["pk"], ())),
                regions=counted.regions,
                presence=presence,
                without_agent=facts.without_agent,
                undecided=facts.undecided,
                started=facts.started,
                scheduled=facts.scheduled,
                types=tuple(filter(None, open_now.get("types", ()))),
                due_at=open_now.get("due_at"),
                glance=glance_of(facts),
            )
        )
    return tuple(found)


def _events(scope: Mapping[str, Any], *, now: datetime) -> dict[int, dict[str, Any]]:
    """By set: its open events in numbers. One query."""
    undecided = Q(undecided_now=True)
    counted = (
        seen(ScheduledEvent)
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
    """Caches by host. Three queries."""
    rows = seen(Cache) if caches is None else caches
    scope: dict[str, Any] = {} if caches is None else {"cache__in": rows}
    active: dict[int, Counter[str]] = defaultdict(Counter)
    statuses = [status.value for status in ACTIVE]
    for cache_id, status in seen(Maintenance).filter(**scope, status__in=statuses).values_list("cache", "status"):
        active[cache_id]["under_way" if status in UNDER_WAY else "announced"] += 1
    heard: dict[int, Counter[str]] = defaultdict(Counter)
    services: dict[int, set[str]] = defaultdict(set)
    listeners = (
        seen(Coverage)
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
        told = heard[pk]
        found.append(
            CacheCell(
                id=pk,
                host=host,
                service=service or shared,
                listening=told["listening"],
                glance=glance_of_cache(
                    announced=active[pk]["announced"],
                    under_way=active[pk]["under_way"],
                    listening=told["listening"],
                    unsupported=told["unsupported"],
                ),
            )
        )
    return tuple(found)


def by_glance(cells: Iterable[SetCell | CacheCell]) -> tuple[tuple[Glance, int], ...]:
    counted = Counter(cell.glance for cell in cells)
    return tuple((glance, counted[glance]) for glance in Glance if counted[glance])
