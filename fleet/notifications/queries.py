"""Queries of channels, routes and registered browsers; health and metrics of notifications."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Unpack

from django.contrib.auth.models import User
from django.db.models import Count, Min, Q
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan

from fleet.domain import gauges
from fleet.domain.clock import seconds_since
from fleet.domain.gauges import Sample
from fleet.domain.people import Right
from fleet.domain.reasons import Reason
from fleet.domain.shapes import InApi, from_row
from fleet.domain.states import EventStatus
from fleet.models import Entry, LastRun
from fleet.models.people import rights_of
from fleet.notifications import routing
from fleet.notifications.channels import KINDS
from fleet.notifications.grouping import RECENT, ROUTED_WITHIN, ChannelHealth, NotificationHealth
from fleet.notifications.models import Channel, Cursor, DeliveryAttempt, Message, MessageDelivery, Route
from fleet.notifications.routing import OPEN_DELIVERIES, TEST, DeliveryState, MessageState
from fleet.projections.pages import At, Page, Segment, read_page
from fleet.projections.visibility import visible

# The name of the router's runs and of its cursor.
ROUTER = "router"
OWN = "For oneself alone, and not the installation's."
CAN_CHANGE = "Whether the caller may change it."
# Counting stops here: one is enough for an alarm.
MOST = 100


def notification_health(*, now: datetime) -> NotificationHealth:
    """Return the health of notifications of the installation: the worst state that applies. Four queries."""
    enabled = visible(Channel).filter(enabled=True, deleted_at=None)
    counts = enabled.aggregate(channels=Count("pk"), failing=Count("pk", filter=Q(failures__gte=routing.FAILING_AFTER)))
    unrouted = visible(Message).filter(state=MessageState.UNROUTED.value, event__isnull=False).order_by("-id")
    undelivered = sum(at > now - RECENT for at in unrouted.values_list("created_at", flat=True)[:MOST])
    given_up = visible(MessageDelivery).filter(created_at__gt=now - RECENT, state=DeliveryState.GIVEN_UP.value)
    undelivered += given_up.exclude(moment=TEST).order_by()[:MOST].count()
    routed_at = visible(LastRun).filter(name=ROUTER).values_list("ran_at", flat=True).first()
    if not counts["channels"]:
        return NotificationHealth.NO_CHANNEL
    if seconds_since(routed_at, now=now) > ROUTED_WITHIN.total_seconds():
        return NotificationHealth.STANDS_STILL
    if counts["failing"] == counts["channels"]:
        return NotificationHealth.ALL_FAIL
    if undelivered:
        return NotificationHealth.UNDELIVERED
    return NotificationHealth.SOME_FAIL if counts["failing"] else NotificationHealth.WORKS


# Channels and routes of the installation and of the user. Those of other users are not visible.


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """Short form of a channel. `owner` is the user of a personal channel. Its `name` is empty for other users."""

    id: int
    name: str
    kind: str
    owner: Annotated[str, InApi.OMITTED] = ""


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """One channel. The fields `settings` to `last_answer` are None for users who may not change the channel."""

    id: int
    name: str
    kind: str
    own: Annotated[bool, OWN]
    enabled: bool
    takes_messages: Annotated[bool, "It takes messages; false for one that mirrors what is open."]
    health: Annotated[ChannelHealth, "`new`: nothing was sent yet; `held`: it asked to wait, see `held_until`."]
    settings: Annotated[dict[str, Any] | None, "Null if the caller may not change it. Secrets are never shown."]
    secrets_set: Annotated[tuple[str, ...] | None, "Which secrets are set, by name."]
    secret_created_at: Annotated[datetime | None, "Of a webhook: when its secret was made."]
    earlier_secret_until: Annotated[datetime | None, "Until then it is signed with the secret before, too."]
    last_error: Annotated[str | None, "A code: why the last attempt failed."]
    last_answer: Annotated[str | None, "What it answered to the last attempt."]
    created_at: datetime
    changed_at: datetime
    last_ok_at: datetime | None
    failing_since: datetime | None
    failures: Annotated[int, "How many attempts in a row have failed."]
    held_until: Annotated[datetime | None, "Nothing is sent before then."]
    can_change: Annotated[bool, CAN_CHANGE]
    server_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow(routing.RouteConditions):
    """One route, with its conditions."""

    id: int
    name: str
    own: Annotated[bool, OWN]
    enabled: bool
    position: int
    version: Annotated[int, "Moves with each change; a message keeps the one that sent it."]
    wording: Annotated[Reason, "The whole route in one sentence, as it is kept with its messages."]
    channel: Annotated[ChannelRef | None, "Null: every channel of the installation."]
    channel_disabled: Annotated[bool, "Its channel is switched off."]
    created_at: datetime
    changed_at: datetime
    can_change: Annotated[bool, CAN_CHANGE]


def channel_ref(row: Channel, person: User) -> ChannelRef:
    """Return the short form of a channel for this user. The owner must be loaded."""
    name = row.name if row.owner_id in (None, person.pk) else ""
    return ChannelRef(row.pk, name, row.kind, row.owner.get_username() if row.owner else "")


def for_reader(person: User | None, *, path: str = "") -> Q:
    """Return the condition for rows that belong to the installation or to this user. `path` is the path from the row to
    the owner.
    """
    return Q(**{f"{path}owner": None}) | Q(**{f"{path}owner": person})


def can_change(row: Channel | Route, person: User) -> bool:
    """Return whether this user may change a channel or route and see its settings. The row must be one that
    `for_reader` selects.
    """
    return row.owner_id == person.pk or rights_of(person).may(Right.ADMINISTER)


def channels(*, person: User, now: datetime, owners: Iterable[User | None] = (), **at: Unpack[At]) -> Page[ChannelRow]:
    """Return a page of channels by name: those of `owners` (None: the installation), or by default those of the
    installation, then the user's own. A query for each owner, and one for the user's rights.
    """
    rows = visible(Channel).filter(deleted_at=None)
    parts = [Segment(rows.filter(owner=owner), "name") for owner in owners or (None, person)]
    return read_page(parts, **at).map(lambda rows: [_channel(row, person, now) for row in rows])


def detail(*, channel_id: int, person: User, now: datetime) -> ChannelRow | None:
    """Return the channel with this row id, or None if this user may not see it. One query."""
    row = visible(Channel).filter(for_reader(person), pk=channel_id, deleted_at=None).first()
    return _channel(row, person, now) if row else None


def _channel(row: Channel, person: User, now: datetime) -> ChannelRow:
    open_to = can_change(row, person)
    kind = KINDS.get(row.kind)
    stated = {name: row.settings[name] for name in kind.fields if name in row.settings} if kind else None
    return from_row(
        ChannelRow,
        row,
        own=row.owner_id is not None,
        takes_messages=kind is not None and kind.messages,
        health=health_of(row, now=now),
        settings=stated if open_to else None,
        secrets_set=tuple(row.settings.get("secrets_set", ())) if open_to else None,
        secret_created_at=_time(row, "secret_made_at") if open_to else None,
        earlier_secret_until=_time(row, "earlier_secret_until", after=now) if open_to else None,
        last_error=row.last_error if open_to else None,
        last_answer=row.last_answer if open_to else None,
        can_change=open_to,
        server_time=now,
    )


def _time(row: Channel, name: str, *, after: datetime | None = None) -> datetime | None:
    text = row.settings.get(name)
    at = datetime.fromisoformat(text) if text else None
    return at if at is not None and (after is None or at > after) else None


def routes(*, person: User, owners: Iterable[User | None] = (), **at: Unpack[At]) -> Page[RouteRow]:
    """Return a page of routes in order: those of `owners`, as for `channels`. A query for each owner, and one for the
    user's rights.
    """
    rows = visible(Route).filter(deleted_at=None).select_related("channel__owner")
    parts = [Segment(rows.filter(owner=owner), "position") for owner in owners or (None, person)]
    return read_page(parts, **at).map(lambda rows: [_route(row, person) for row in rows])


def route(*, route_id: int, person: User) -> RouteRow | None:
    """Return the route with this row id, or None if this user may not see it. One query."""
    rows = visible(Route).filter(for_reader(person), pk=route_id, deleted_at=None).select_related("channel__owner")
    row = rows.first()
    return _route(row, person) if row else None


def _route(row: Route, person: User) -> RouteRow:
    channel = row.channel
    return from_row(
        RouteRow,
        row,
        own=row.owner_id is not None,
        wording=row.wording(channel),
        channel=channel_ref(channel, person) if channel else None,
        channel_disabled=channel is not None and not channel.enabled,
        can_change=can_change(row, person),
    )


# Metrics for Prometheus, and the backlog of each channel.


@dataclass(frozen=True, slots=True)
class Backlog:
    """Number of waiting messages and deliveries, and the creation time of the oldest."""

    count: int
    since: datetime


def health_of(row: Channel, *, now: datetime) -> ChannelHealth:
    """Return the health of a channel. A channel that is both failing and paused counts as failing."""
    if not row.enabled:
        return ChannelHealth.OFF
    if row.failing_since is not None:
        return ChannelHealth.FAILS
    if row.held_until is not None and row.held_until > now:
        return ChannelHealth.HELD
    return ChannelHealth.NEW if row.last_ok_at is None else ChannelHealth.WORKS


def backlog(*, now: datetime, by: str = "channel__pk") -> dict[Any, Backlog]:
    """Return the backlog by channel (row id), or by the column `by`. Two queries."""
    messages = visible(Message).filter(state=MessageState.WAITING.value, due_at__lte=now, channel__deleted_at=None)
    deliveries = visible(MessageDelivery).filter(state__in=OPEN_DELIVERIES, channel__deleted_at=None)
    waiting: dict[Any, Backlog] = {}
    for rows, since_column in ((messages, "due_at"), (deliveries, "created_at")):
        grouped = rows.order_by().values_list(by).annotate(count=Count("pk"), since=Min(since_column))
        for key, count, since in grouped:
            former = waiting.get(key, Backlog(0, since))
            waiting[key] = Backlog(former.count + count, min(former.since, since))
    return waiting


# Gauges for Prometheus, in a fixed number of queries.


def measure(*, now: datetime) -> tuple[Sample, ...]:
    """Return the current values of all metrics of notifications. Nine queries."""
    waiting, hour_ago = backlog(now=now, by="channel__kind"), now - timedelta(hours=1)
    oldest = min((backlog.since for backlog in waiting.values()), default=now)
    created = visible(MessageDelivery).filter(created_at__gt=hour_ago).order_by()
    by_state = created.values_list("channel__kind", "state").annotate(count=Count("pk"))
    failed = visible(DeliveryAttempt).filter(at__gt=hour_ago, ok=False).order_by()
    by_kind = failed.values_list("delivery__channel__kind").annotate(count=Count("pk"))
    ran_at = visible(LastRun).filter(name=ROUTER).values_list("ran_at", flat=True).first()
    channels = Counter(health_of(row, now=now) for row in visible(Channel).filter(deleted_at=None))
    unrouted = visible(Message).filter(state=MessageState.UNROUTED.value, event__drill=False)
    still_open = unrouted.exclude(event__status=EventStatus.ENDED.value).order_by()
    return (
        Sample(gauges.MESSAGES_WAITING, {(kind,): backlog.count for kind, backlog in waiting.items()}),
        Sample(gauges.OLDEST_MESSAGE, {(): max(0.0, (now - oldest).total_seconds())}),
        Sample(gauges.DELIVERIES, {(kind, state): count for kind, state, count in by_state}),
        Sample(gauges.ATTEMPTS_FAILED, {(kind,): count for kind, count in by_kind}),
        Sample(gauges.ROUTER_AGE, {} if ran_at is None else {(): seconds_since(ran_at, now=now)}),
        Sample(gauges.ROUTER_LAG, {(): router_lag(now)}),
        Sample(gauges.CHANNELS, {(health.value,): channels[health] for health in ChannelHealth}),
        Sample(gauges.UNROUTED, {(): still_open.values("event").distinct().count()}),
    )


def router_lag(now: datetime) -> float:
    """Return the age in seconds of the oldest timeline entry that the router has not read yet. Two queries."""
    cursor = visible(Cursor).filter(name=ROUTER).first()
    if cursor is None:
        return 0.0
    # By the index of the stream: the first entry after the cursor.
    behind = TupleGreaterThan(Tuple("era", "xid", "id"), (cursor.era, cursor.xid, cursor.entry_id))
    rows = visible(Entry).filter(behind).order_by("era", "xid", "id")
    entry = rows.values_list("recorded_at", flat=True).first()
    return 0.0 if entry is None else max(0.0, (now - entry).total_seconds())
