"""Page of a service: sets, caches, and events of machines that overlap with maintenances of caches."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fleet.domain.caches.maintenances import Meeting, impact_of_event, impact_of_maintenance, meetings
from fleet.domain.reasons import Reason
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.desk.fleet_map import CacheCell, MapGroup, SetCell, cache_cells, set_cells
from fleet.projections.refs import runbook_of
from fleet.projections.spans import EventSpan, Spans, caches_of, sets_of


@dataclass(frozen=True, slots=True)
class MeetingRow:
    """An event of machines and a maintenance of a cache that overlapped, or may overlap."""

    event: EventSpan
    maintenance: MaintenanceRow
    begin: datetime
    end: datetime
    sure: bool
    text: Reason


@dataclass(frozen=True, slots=True)
class ServiceDetail:
    """One service; `name` in the spelling in which it was first reported."""

    name: str
    group: MapGroup
    runbook: str
    server_time: datetime


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The settings of a service."""

    name: str
    runbook: Annotated[str, "Link that pages of its events show; may be empty."]


def settings_of(*, service: str) -> ServiceSettings | None:
    """Return the settings of a service by name in any case; None if no set and no cache belongs to it. At most three
    queries.
    """
    rows = (sets_of(service), caches_of(service))
    name = next((row.service for each in rows if (row := each.exclude(service="").first())), None)
    return ServiceSettings(name, runbook_of(name)) if name else None


def detail(*, service: str, now: datetime) -> ServiceDetail | None:
    """Return one service by name in any case; None if it does not exist. Nine queries."""
    sets: tuple[SetCell, ...] = set_cells(now=now, sets=sets_of(service))
    caches: tuple[CacheCell, ...] = cache_cells(now=now, caches=caches_of(service))
    if not sets and not caches:
        return None
    spelled = [*(cell.service for cell in sets), *(cache.service for cache in caches)]
    name = next(filter(None, spelled), service)
    group = MapGroup(name, sets, caches)
    return ServiceDetail(name=name, group=group, runbook=runbook_of(name), server_time=now)


def meetings_of(spans: Spans, *, now: datetime) -> tuple[MeetingRow, ...]:
    """Return the overlaps of events and maintenances, the latest first. No query."""
    events = {event.event_id: event for event in spans.events if not event.drill}
    rows = {str(row.id): row for cache in spans.caches for row in cache.maintenances}
    hits = [
        impact_of_event(
            key=key,
            status=event.status,
            not_before=event.not_before,
            started_at=event.started_at,
            ended_at=event.ended_at,
            duration_seconds=event.duration_seconds,
            now=now,
        )
        for key, event in events.items()
    ]
    breaks = [
        impact_of_maintenance(
            key=key,
            status=row.status,
            earliest_at=row.earliest_at,
            began_at=row.began_at,
            ended_at=row.ended_at,
            last_at=row.last_at,
            now=now,
        )
        for key, row in rows.items()
    ]
    found = meetings(filter(None, hits), filter(None, breaks), now=now)
    return tuple(_row(one, events[one.event], rows[one.maintenance], now=now) for one in found)


def _row(one: Meeting, event: EventSpan, maintenance: MaintenanceRow, *, now: datetime) -> MeetingRow:
    over = not event.open and not maintenance.active
    text = Reason(
        "service-meeting",
        tense="past" if over else "now" if one.sure else "ahead",
        event_type=event.event_type,
        resources=list(event.resources),
        set=event.set.label,
        cache=maintenance.cache.name,
        begin=one.begin,
        end=one.end,
    )
    return MeetingRow(event, maintenance, one.begin, one.end, one.sure, text)
