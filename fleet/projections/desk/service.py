"""Page of a service: sets, caches, and events of machines that overlap with maintenances of caches."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Annotated

from fleet.domain.caches.maintenances import ASSUMED, MaintenanceStatus
from fleet.domain.reasons import Reason
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.desk.fleet_map import MapGroup, cache_cells, set_cells
from fleet.projections.refs import runbook_of
from fleet.projections.spans import EventSpan, Spans, caches_of, sets_of

# Shortest assumed impact of an event, and the number of overlaps that are listed one by one.
SHORTEST = timedelta(minutes=1)
MOST = 20


@dataclass(frozen=True, slots=True)
class MeetingRow:
    """An event of machines and a maintenance of a cache that overlapped, or may overlap."""

    event: EventSpan
    maintenance: MaintenanceRow
    begin: datetime
    end: datetime
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
    sets, caches = set_cells(now=now, sets=sets_of(service)), cache_cells(now=now, caches=caches_of(service))
    if not sets and not caches:
        return None
    spelled = [*(cell.service for cell in sets), *(cache.service for cache in caches)]
    name = next(filter(None, spelled), service)
    return ServiceDetail(name, MapGroup(name, sets, caches), runbook_of(name), server_time=now)


@dataclass(frozen=True, slots=True)
class Impact:
    """The period in which an event or a maintenance has an effect. `sure`: it has really started."""

    begin: datetime
    end: datetime
    sure: bool


def impact_of_event(event: EventSpan, *, now: datetime) -> Impact | None:
    """Return when an event affects its machines; None if it ended without a start, or has no NotBefore."""
    stated = event.duration_seconds or 0
    lasts = max(timedelta(seconds=stated), SHORTEST) if stated > 0 else ASSUMED
    if (started_at := event.started_at) is not None:
        return Impact(started_at, max(event.ended_at or max(now, started_at + lasts), started_at), sure=True)
    if not event.open or event.not_before is None:
        return None
    return Impact(event.not_before, max(now, event.not_before) + lasts, sure=False)


def impact_of_maintenance(row: MaintenanceRow, *, now: datetime) -> Impact | None:
    """Return when a maintenance affects its cache; None if it never started, or the time is unknown."""
    has_begun = row.began_at is not None and row.began_at <= now
    begin = row.began_at or row.earliest_at or row.ended_at
    if begin is None or row.status is MaintenanceStatus.NEVER_STARTED:
        return None
    if not row.active:
        return Impact(begin, max(row.ended_at or row.last_at, begin), sure=True)
    return Impact(begin, max(now, begin + ASSUMED), sure=has_begun)


def meetings_of(spans: Spans, *, now: datetime) -> list[MeetingRow]:
    """Return the overlaps of events and maintenances, the latest first, at most `MOST`. No query."""
    events = [(event, impact_of_event(event, now=now)) for event in spans.events if not event.drill]
    rows = [(row, impact_of_maintenance(row, now=now)) for cache in spans.caches for row in cache.maintenances]
    found = [
        _row(event, row, begin, end, sure=hit.sure and other.sure and begin <= now)
        for (event, hit), (row, other) in product(events, rows)
        if hit and other and (begin := max(hit.begin, other.begin)) < (end := min(hit.end, other.end))
    ]
    return sorted(found, key=lambda meeting: meeting.begin, reverse=True)[:MOST]


def _row(event: EventSpan, maintenance: MaintenanceRow, begin: datetime, end: datetime, *, sure: bool) -> MeetingRow:
    over = not event.open and not maintenance.active
    text = Reason(
        "service-meeting",
        tense="past" if over else "now" if sure else "ahead",
        event_type=event.event_type,
        resources=list(event.resources),
        set=event.set.label,
        cache=maintenance.cache.name,
        begin=begin,
        end=end,
    )
    return MeetingRow(event, maintenance, begin, end, text)
