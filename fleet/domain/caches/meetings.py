"""Maintenances of caches and events of machines that meet in time: a service may bear each alone, and not both."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.states import EventStatus

# What has not ended, and whose length nobody has stated, is taken to last this long.
ASSUMED = timedelta(minutes=15)
SHORTEST = timedelta(minutes=1)
# More are not told one by one.
MOST = 20


@dataclass(frozen=True, slots=True)
class Impact:
    """From when to when something happens, or may happen while `sure` is False; `key` tells it from others."""

    key: str
    begin: datetime
    end: datetime
    sure: bool


@dataclass(frozen=True, slots=True)
class Meeting:
    """The keys of an event and a maintenance, and when both happen; `sure`: both did, or do."""

    event: str
    maintenance: str
    begin: datetime
    end: datetime
    sure: bool


def impact_of_event(
    *,
    key: str,
    status: EventStatus,
    not_before: datetime | None,
    started_at: datetime | None,
    ended_at: datetime | None,
    duration_seconds: int | None,
    now: datetime,
) -> Impact | None:
    """When an event hits its machines. None where it never started and is over, or nobody stated when it may."""
    stated = duration_seconds or 0
    lasts = max(timedelta(seconds=stated), SHORTEST) if stated > 0 else ASSUMED
    if started_at is not None:
        return Impact(key, started_at, max(ended_at or max(now, started_at + lasts), started_at), sure=True)
    if status is EventStatus.ENDED or not_before is None:
        return None
    return Impact(key, not_before, max(now, not_before) + lasts, sure=False)


def impact_of_maintenance(
    *,
    key: str,
    status: MaintenanceStatus,
    earliest_at: datetime | None,
    began_at: datetime | None,
    ended_at: datetime | None,
    last_at: datetime,
    now: datetime,
) -> Impact | None:
    """When a maintenance hits its cache. None where it never started, or nobody knows when."""
    begun = began_at if began_at is not None and began_at <= now else None
    begin = begun or began_at or earliest_at or ended_at
    if begin is None or status is MaintenanceStatus.NEVER_STARTED:
        return None
    if status not in ACTIVE:
        return Impact(key, begin, max(ended_at or last_at, begin), sure=True)
    return Impact(key, begin, max(now, begin + ASSUMED), sure=begun is not None)


def meetings(events: Iterable[Impact], maintenances: Iterable[Impact], *, now: datetime) -> tuple[Meeting, ...]:
    """Which meet, the next or latest first; of those that are sure the end is never later than now."""
    found = sorted(_pairs(list(events), list(maintenances), now), key=lambda one: one.begin, reverse=True)
    return tuple(found[:MOST])


def _pairs(events: list[Impact], maintenances: list[Impact], now: datetime) -> Iterator[Meeting]:
    for event in events:
        for other in maintenances:
            begin, end = max(event.begin, other.begin), min(event.end, other.end)
            if begin < end:
                sure = event.sure and other.sure and begin <= now
                yield Meeting(event.key, other.key, begin, end, sure)
