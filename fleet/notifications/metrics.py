"""Metrics of notifications for Prometheus, and the backlog of each channel."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min, QuerySet
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan

from fleet.domain import gauges
from fleet.domain.clock import seconds_since
from fleet.domain.gauges import Sample
from fleet.domain.states import EventStatus
from fleet.models import Entry, LastRun
from fleet.notifications.grouping import ChannelHealth, health_of
from fleet.notifications.models import Channel, Cursor, DeliveryAttempt, Message, MessageDelivery
from fleet.notifications.routing import DeliveryState, MessageState
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for one channel: how much, and since when the oldest."""

    count: int
    since: datetime


def backlog(*, now: datetime) -> dict[int, Backlog]:
    """What has come due and is not sent yet, by channel (row id). Two queries."""
    due = visible(Message).filter(state=MessageState.WAITING.value, due_at__lte=now)
    packed = visible(MessageDelivery).filter(state__in=[DeliveryState.QUEUED.value, DeliveryState.SENDING.value])
    found: dict[int, Backlog] = {}
    for rows, column in ((due, "due_at"), (packed, "created_at")):
        grouped = rows.order_by().values_list("channel").annotate(count=Count("pk"), since=Min(column))
        for channel_id, count, since in grouped:
            known = found.get(channel_id, Backlog(0, since))
            found[channel_id] = Backlog(known.count + count, min(known.since, since))
    return found


# Messages out in numbers for Prometheus, in a fixed number of queries.

# The name under which the router says that it looked, and where it stands.
ROUTER = "router"
OPEN_DELIVERIES = [DeliveryState.QUEUED.value, DeliveryState.SENDING.value]
HOUR = timedelta(hours=1)


def measure(*, now: datetime) -> tuple[Sample, ...]:
    """Every gauge of messages. Nine queries."""
    return (*_waiting(now), *_posts(now), *_router(now), *_channels(now), _unrouted())


def _waiting(now: datetime) -> tuple[Sample, ...]:
    due = visible(Message).filter(state=MessageState.WAITING.value, due_at__lte=now, channel__deleted_at=None)
    packed = visible(MessageDelivery).filter(state__in=OPEN_DELIVERIES, channel__deleted_at=None)
    counts: Counter[str] = Counter()
    oldest = now
    for kind, count, since in (*_by_kind(due, "due_at"), *_by_kind(packed, "created_at")):
        counts[kind] += count
        oldest = min(oldest, since)
    return (
        Sample(gauges.MESSAGES_WAITING, {(kind,): count for kind, count in counts.items()}),
        Sample(gauges.OLDEST_MESSAGE, {(): (now - oldest).total_seconds()}),
    )


def _by_kind(rows: QuerySet[Message] | QuerySet[MessageDelivery], column: str) -> list[tuple[str, int, datetime]]:
    grouped = rows.order_by().values_list("channel__kind")
    return list(grouped.annotate(count=Count("pk"), since=Min(column)))


def _posts(now: datetime) -> tuple[Sample, ...]:
    made = visible(MessageDelivery).filter(created_at__gt=now - HOUR).order_by()
    failed = visible(DeliveryAttempt).filter(at__gt=now - HOUR, ok=False).order_by()
    return (
        Sample(
            gauges.DELIVERIES,
            {
                (kind, DeliveryState(state).value): count
                for kind, state, count in made.values_list("channel__kind", "state").annotate(count=Count("pk"))
            },
        ),
        Sample(
            gauges.ATTEMPTS_FAILED,
            {
                (kind,): count
                for kind, count in failed.values_list("delivery__channel__kind").annotate(count=Count("pk"))
            },
        ),
    )


def _router(now: datetime) -> tuple[Sample, ...]:
    ran_at = visible(LastRun).filter(name=ROUTER).values_list("ran_at", flat=True).first()
    age: dict[tuple[str, ...], float] = {}
    if ran_at is not None:
        age[()] = seconds_since(ran_at, now=now)
    return (Sample(gauges.ROUTER_AGE, age), Sample(gauges.ROUTER_LAG, {(): router_lag(now)}))


def router_lag(now: datetime) -> float:
    """For how many seconds the oldest entry waits that the router has not read. Two queries."""
    cursor = visible(Cursor).filter(name=ROUTER).first()
    # By the index of the stream: the first entry behind the cursor.
    behind = [TupleGreaterThan(Tuple("era", "xid", "id"), (cursor.era, cursor.xid, cursor.entry_id))] if cursor else []
    entry = visible(Entry).filter(*behind).order_by("era", "xid", "id").values_list("recorded_at", flat=True).first()
    return 0.0 if cursor is None or entry is None else max(0.0, (now - entry).total_seconds())


def _channels(now: datetime) -> tuple[Sample, ...]:
    counts = Counter(
        health_of(
            enabled=row.enabled,
            last_ok_at=row.last_ok_at,
            failing_since=row.failing_since,
            held_until=row.held_until,
            now=now,
        )
        for row in visible(Channel).filter(deleted_at=None)
    )
    return (Sample(gauges.CHANNELS, {(health.value,): counts[health] for health in ChannelHealth}),)


def _unrouted() -> Sample:
    found = visible(Message).filter(state=MessageState.UNROUTED.value, event__drill=False)
    still_open = found.exclude(event__status=EventStatus.ENDED.value)
    return Sample(gauges.UNROUTED, {(): still_open.order_by().values("event").distinct().count()})
