"""Metrics of notifications for Prometheus, and the backlog of each channel."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan

from fleet.domain import gauges
from fleet.domain.clock import seconds_since
from fleet.domain.gauges import Sample
from fleet.domain.states import EventStatus
from fleet.models import Entry, LastRun
from fleet.notifications.grouping import ChannelHealth
from fleet.notifications.models import Channel, Cursor, DeliveryAttempt, Message, MessageDelivery
from fleet.notifications.routing import DeliveryState, MessageState
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class Backlog:
    """Number of waiting messages and deliveries, and the time of the oldest."""

    count: int
    since: datetime


def health_of(row: Channel, *, now: datetime) -> ChannelHealth:
    """Return the health of a channel. Failing precedes paused, because a failing channel is paused, too."""
    if not row.enabled:
        return ChannelHealth.OFF
    if row.failing_since is not None:
        return ChannelHealth.FAILS
    if row.held_until is not None and row.held_until > now:
        return ChannelHealth.HELD
    return ChannelHealth.NEW if row.last_ok_at is None else ChannelHealth.WORKS


def backlog(*, now: datetime) -> dict[int, Backlog]:
    """Return the backlog of each channel (row id). Two queries."""
    return _waiting_by("channel__pk", now=now)


def _waiting_by(column: str, *, now: datetime) -> dict[Any, Backlog]:
    messages = visible(Message).filter(state=MessageState.WAITING.value, due_at__lte=now, channel__deleted_at=None)
    deliveries = visible(MessageDelivery).filter(state__in=OPEN_DELIVERIES, channel__deleted_at=None)
    waiting: dict[Any, Backlog] = {}
    for rows, since_column in ((messages, "due_at"), (deliveries, "created_at")):
        grouped = rows.order_by().values_list(column).annotate(count=Count("pk"), since=Min(since_column))
        for key, count, since in grouped:
            known = waiting.get(key, Backlog(0, since))
            waiting[key] = Backlog(known.count + count, min(known.since, since))
    return waiting


# Gauges for Prometheus, in a fixed number of queries.

# The name of the router's runs and of its cursor.
ROUTER = "router"
OPEN_DELIVERIES = [DeliveryState.QUEUED.value, DeliveryState.SENDING.value]
HOUR = timedelta(hours=1)


def measure(*, now: datetime) -> tuple[Sample, ...]:
    """Return all gauges of notifications. Nine queries."""
    return (*_waiting(now), *_deliveries(now), *_router(now), *_channels(now), _unrouted())


def _waiting(now: datetime) -> tuple[Sample, ...]:
    waiting = _waiting_by("channel__kind", now=now)
    oldest = min((each.since for each in waiting.values()), default=now)
    return (
        Sample(gauges.MESSAGES_WAITING, {(kind,): each.count for kind, each in waiting.items()}),
        Sample(gauges.OLDEST_MESSAGE, {(): max(0.0, (now - oldest).total_seconds())}),
    )


def _deliveries(now: datetime) -> tuple[Sample, ...]:
    created = visible(MessageDelivery).filter(created_at__gt=now - HOUR).order_by()
    failed = visible(DeliveryAttempt).filter(at__gt=now - HOUR, ok=False).order_by()
    return (
        Sample(
            gauges.DELIVERIES,
            {
                (kind, DeliveryState(state).value): count
                for kind, state, count in created.values_list("channel__kind", "state").annotate(count=Count("pk"))
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
    """Return the age in seconds of the oldest entry that the router has not read. Two queries."""
    cursor = visible(Cursor).filter(name=ROUTER).first()
    # By the index of the stream: the first entry after the cursor.
    behind = [TupleGreaterThan(Tuple("era", "xid", "id"), (cursor.era, cursor.xid, cursor.entry_id))] if cursor else []
    entry = visible(Entry).filter(*behind).order_by("era", "xid", "id").values_list("recorded_at", flat=True).first()
    return 0.0 if cursor is None or entry is None else max(0.0, (now - entry).total_seconds())


def _channels(now: datetime) -> tuple[Sample, ...]:
    counts = Counter(health_of(row, now=now) for row in visible(Channel).filter(deleted_at=None))
    return (Sample(gauges.CHANNELS, {(health.value,): counts[health] for health in ChannelHealth}),)


def _unrouted() -> Sample:
    unrouted = visible(Message).filter(state=MessageState.UNROUTED.value, event__drill=False)
    still_open = unrouted.exclude(event__status=EventStatus.ENDED.value)
    return Sample(gauges.UNROUTED, {(): still_open.order_by().values("event").distinct().count()})
