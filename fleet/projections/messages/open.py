"""What is open, for channels that mirror it: events, operations on caches, and the machines under a maintenance."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.approvals.recommend import OWN
from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.messages.severity import OF_TYPE, Severity, cache_severity
from fleet.domain.messages.silences import Muted
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Cache, Machine, Maintenance, Reference, ScheduledEvent
from fleet.models.facts.events import presence_limits
from fleet.projections.events.rows import OPEN
from fleet.projections.refs import plain_name
from fleet.projections.sight import seen

# What Azure says first counts most where there is more.
MOST = 10_000
# An operation is on its way from here on; before, the cache works as ever.
UNDER_WAY = (MaintenanceStatus.UNDER_WAY.value, MaintenanceStatus.FAILED_OVER.value)


@dataclass(frozen=True, slots=True)
class OpenThing:
    """An open event, or an operation on a cache (`event_id` is empty then). `started`: it is under way since then.

    `severity` goes by the type alone, so that it stays the same as long as the thing is open.
    """

    subject: str
    event_id: str
    event_type: str
    service: str
    severity: Severity
    first_at: datetime
    started_at: datetime | None
    due_at: datetime | None
    drill: bool = False
    set_id: int | None = None
    set_name: str = ""
    resource_group: str = ""
    resources: tuple[str, ...] = ()
    maintenance_id: int | None = None
    cache_host: str = ""
    shard: int | None = None


def open_things() -> tuple[OpenThing, ...]:
    """All that is open, the nearest NotBefore first, in two queries."""
    events = seen(ScheduledEvent).filter(status__in=OPEN).select_related("availability_set")
    active = [status.value for status in ACTIVE]
    maintenances = seen(Maintenance).filter(status__in=active).select_related("cache").order_by("-first_at", "-id")
    return (
        *map(_event, events.order_by("not_before", "id")[:MOST]),
        *map(_maintenance, maintenances[:MOST]),
    )


def _event(row: ScheduledEvent) -> OpenThing:
    home = row.availability_set
    return OpenThing(
        subject=f"event:{row.pk}",
        event_id=row.event_id,
        event_type=row.event_type,
        service=home.service,
        severity=_severity(row),
        first_at=row.first_seen_at,
        started_at=row.started_at if row.status == EventStatus.STARTED.value else None,
        due_at=row.not_before,
        drill=row.drill,
        set_id=home.pk,
        set_name=f"{home.name} ({home.apart})" if home.apart else home.name,
        resource_group=home.resource_group,
        resources=tuple(row.resources),
    )


def _severity(row: ScheduledEvent) -> Severity:
    found = OF_TYPE.get(row.event_type, Severity.WARNING)
    own = row.source == OWN and row.event_type in OF_TYPE and found is not Severity.CRITICAL
    return Severity.INFO if own else found


def _maintenance(row: Maintenance) -> OpenThing:
    return OpenThing(
        subject=f"maintenance:{row.pk}",
        event_id="",
        event_type="",
        service=row.cache.service,
        severity=cache_severity(row.cache.tier),
        first_at=row.first_at,
        started_at=row.began_at or row.last_at if row.status in UNDER_WAY else None,
        due_at=row.expected_at,
        maintenance_id=row.pk,
        cache_host=row.cache.host,
        shard=row.shard,
    )


def muted_machines(things: Iterable[OpenThing]) -> dict[str, tuple[Muted, ...]]:
    """Of events the machines that they name, by subject. One query. Of a machine without an agent only the name is
    known.
    """
    named = [thing for thing in things if thing.set_id is not None]
    known: dict[tuple[int, str], Machine] = {}
    for row in seen(Machine).filter(availability_set__in={thing.set_id for thing in named}):
        known[row.availability_set_id, plain_name(row.resource_name)] = row
    found: dict[str, tuple[Muted, ...]] = {}
    for thing in named:
        rows = [(name, known.get((thing.set_id or 0, plain_name(name)))) for name in thing.resources]
        found[thing.subject] = tuple(muted(row) if row else Muted(name=(name,)) for name, row in rows)
    return found


def muted(machine: Machine) -> Muted:
    """By what alerts about a machine may be known."""
    said: dict[str, Any] = machine.compute
    profile = said.get("osProfile")
    host = str(profile.get("computerName") or "") if isinstance(profile, dict) else ""
    return Muted(name=(machine.resource_name,), host=(host,) if host else (), address=addresses(said))


def addresses(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The private addresses that a machine's agent stated beside its instance metadata."""
    found = said.get("privateIpAddresses")
    return tuple(str(address) for address in found) if isinstance(found, list) else ()


def live_machines(holds_for: Callable[[str], bool], *, now: datetime, most: int) -> tuple[Muted, ...]:
    """Up to so many machines, heard lately, whose service is one of these. Two queries."""
    stated = seen(AvailabilitySet).filter(merged_into=None).order_by().values_list("service", flat=True).distinct()
    wanted = [service for service in stated if holds_for(service)]
    since = now - timedelta(seconds=presence_limits().late)
    rows = seen(Machine).filter(availability_set__service__in=wanted, presence__last_heard_at__gte=since)
    return tuple(map(muted, rows.order_by("id")[:most]))


def live_caches(holds_for: Callable[[str], bool], *, most: int) -> tuple[Muted, ...]:
    """Up to so many caches whose service is one of these. Two queries."""
    stated = seen(Cache).order_by().values_list("service", flat=True).distinct()
    rows = seen(Cache).filter(service__in=[service for service in stated if holds_for(service)])
    return tuple(Muted(cache=(row.host,)) for row in rows.order_by("id")[:most])


def kept(channel_id: int) -> dict[str, Mapping[str, Any]]:
    """What a channel keeps, by subject. One query."""
    rows = seen(Reference).filter(channel=channel_id).order_by()
    return dict(rows.values_list("subject", "value"))
