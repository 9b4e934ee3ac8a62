"""A calendar: what is announced, what was until lately, no-approval windows, and maintenance of caches."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Q

from fleet.domain.caches.maintenances import ACTIVE
from fleet.domain.people import pattern_of
from fleet.domain.policy.hours import next_edge, within
from fleet.domain.states import EventStatus
from fleet.models import CalendarFeed, Maintenance, NoApprovalWindow, ScheduledEvent
from fleet.projections.events.rows import OPEN
from fleet.projections.visibility import seen

# What is over stays so long, as cancelled: a calendar that no longer finds it may keep it for ever.
KEPT = timedelta(days=2)
# How far back a thing may have been seen first that ended only lately.
SEEN_WITHIN = timedelta(days=30)
# Weekly windows are written out one by one so far ahead: their hours follow a local clock, a calendar has UTC only.
AHEAD = timedelta(days=14)
# Of each kind.
MOST = 200
# What nobody has stated a length of.
SHORTEST = timedelta(minutes=5)
EDGES = 400


class DateKind(StrEnum):
    EVENT = "event"
    WINDOW = "window"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class CalendarDate:
    """One date. `uid` stays the same; `sequence` grows with each change; `over`: nothing is to be expected any more.

    `name` is the set's, the window's or the cache's. `started`: it is under way. `changed_at` is when it became so.
    """

    kind: DateKind
    uid: str
    sequence: int
    begin: datetime
    end: datetime
    changed_at: datetime
    over: bool
    name: str
    service: str = ""
    path: str = ""
    started: bool = False
    event_id: str = ""
    event_type: str = ""
    resources: tuple[str, ...] = ()
    source: str = ""
    reason: str = ""
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class CalendarFeedRow:
    """A person's calendar, as its page lists it."""

    prefix: str
    name: str
    set_pattern: str
    service: str
    created_at: datetime
    last_used_at: datetime | None


def feeds(*, user_id: int) -> tuple[CalendarFeedRow, ...]:
    """A person's calendars that have not ended, the newest first. One query."""
    rows = seen(CalendarFeed).filter(user=user_id, ended_at=None).order_by("-id")
    return tuple(
        CalendarFeedRow(row.prefix, row.name, row.set_pattern, row.service, row.created_at, row.last_used_at)
        for row in rows
    )


def dates(*, set_pattern: str = "", service: str = "", now: datetime) -> tuple[CalendarDate, ...]:
    """By set and service; empty ones are all. Five queries, and bounded."""
    return (
        *_events(set_pattern, service, now),
        *_windows(set_pattern, service, now),
        *([] if set_pattern else _maintenances(service, now)),
    )


def _narrowed(column: str, pattern: str) -> Q:
    return Q(**{f"{column}__iregex": f"^({pattern_of(pattern)})$"}) if pattern else Q()


def _events(set_pattern: str, service: str, now: datetime) -> Iterator[CalendarDate]:
    where = _narrowed("availability_set__name", set_pattern) & _narrowed("availability_set__service", service)
    rows = seen(ScheduledEvent).filter(where, drill=False).select_related("availability_set")
    timed = rows.filter(Q(not_before__isnull=False) | Q(started_at__isnull=False))
    ended = timed.filter(status=EventStatus.ENDED.value, first_seen_at__gte=now - SEEN_WITHIN, ended_at__gte=now - KEPT)
    for row in timed.filter(status__in=OPEN).order_by("not_before", "id")[:MOST]:
        yield _event(row)
    for row in ended.order_by("-first_seen_at", "-id")[:MOST]:
        yield _event(row)


def _event(row: ScheduledEvent) -> CalendarDate:
    begin = row.started_at or row.not_before or row.first_seen_at
    length = max(timedelta(seconds=max(row.duration_seconds or 0, 0)), SHORTEST)
    home = row.availability_set
    return CalendarDate(
        DateKind.EVENT,
        uid=f"event-{row.event_id.lower()}",
        sequence=row.version,
        begin=begin,
        end=begin + length,
        changed_at=row.ended_at or row.started_at or row.first_seen_at,
        over=row.status == EventStatus.ENDED.value,
        name=f"{home.name} ({home.apart})" if home.apart else home.name,
        service=home.service,
        path=f"/events/{row.event_id}/",
        started=row.status == EventStatus.STARTED.value,
        event_id=row.event_id,
        event_type=row.event_type,
        resources=tuple(row.resources),
        source=row.source,
    )


def _windows(set_pattern: str, service: str, now: datetime) -> Iterator[CalendarDate]:
    """Those that hold in some set or in this service; deleted ones stay as cancelled for a while."""
    still = Q(deleted_at=None) | Q(deleted_at__gte=now - KEPT)
    lasting = Q(ends_at=None) | Q(ends_at__gte=now - KEPT)
    rows = seen(NoApprovalWindow).filter(still & lasting).order_by("id")
    if service:
        rows = rows.filter(Q(service="") | _narrowed("service", service))
    if set_pattern:
        rows = rows.filter(Q(set_pattern="") | Q(set_pattern__iexact=set_pattern))
    found = 0
    for row in rows[:MOST]:
        for begin, end in _spans(row, now):
            yield _window(row, begin, end)
            found += 1
            if found >= MOST:
                return


def _spans(row: NoApprovalWindow, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    if row.starts_at is not None or row.ends_at is not None:
        begin, end = row.starts_at or row.created_at, row.ends_at or now + AHEAD
        if begin < end:
            yield begin, end
        return
    hours = {name: getattr(row, name) for name in ("weekdays", "from_time", "until_time", "time_zone")}
    # From the beginning of the day before, so that one that holds now has its own begin.
    at = (now - timedelta(days=2)).replace(hour=0, minute=0, second=0, microsecond=0)
    begun: datetime | None = None
    for _ in range(EDGES):
        edge = next_edge(at, **hours)
        if edge is None or edge > now + AHEAD:
            return
        inside = within(edge, **hours)
        if inside and begun is None and not within(edge - timedelta(seconds=1), **hours):
            begun = edge
        elif not inside and begun is not None:
            yield begun, edge
            begun = None
        at = edge


def _window(row: NoApprovalWindow, begin: datetime, end: datetime) -> CalendarDate:
    once = row.starts_at is not None or row.ends_at is not None
    return CalendarDate(
        DateKind.WINDOW,
        uid=f"window-{row.pk}" if once else f"window-{row.pk}-{begin:%Y%m%dT%H%M}",
        sequence=0 if row.deleted_at is None else 1,
        begin=begin,
        end=end,
        changed_at=row.deleted_at or row.created_at,
        over=row.deleted_at is not None,
        name=row.name,
        service=row.service,
        path="/policy/",
        reason=row.reason,
    )


def _maintenances(service: str, now: datetime) -> Iterator[CalendarDate]:
    rows = seen(Maintenance).filter(_narrowed("cache__service", service)).select_related("cache")
    active = [status.value for status in ACTIVE]
    over = rows.exclude(status__in=active).filter(first_at__gte=now - KEPT)
    for row in (*rows.filter(status__in=active).order_by("-first_at")[:MOST], *over.order_by("-first_at")[:MOST]):
        begin = row.began_at or row.expected_at or row.first_at
        yield CalendarDate(
            DateKind.MAINTENANCE,
            uid=f"maintenance-{row.pk}",
            # Each line that was heard, and each status that time alone brought, is one more.
            sequence=2 * int((row.last_at - row.first_at).total_seconds()) + (row.status not in active),
            begin=begin,
            end=max(row.ended_at or begin, begin + SHORTEST),
            changed_at=row.ended_at or row.last_at,
            over=row.status not in active,
            name=row.cache.host,
            service=row.cache.service,
            path=f"/maintenances/{row.pk}/",
            started=row.began_at is not None,
            shard=row.shard,
        )
