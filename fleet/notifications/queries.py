"""Queries of channels, routes, registered browsers, and of failing notifications."""

from dataclasses import dataclass
from datetime import datetime, time
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db.models import Count, Q

from fleet.domain.people import Right
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.models import LastRun
from fleet.models.people import rights_of
from fleet.notifications.channels import KINDS
from fleet.notifications.grouping import (
    RECENT,
    ChannelHealth,
    NotificationFacts,
    NotificationHealth,
    notification_health,
)
from fleet.notifications.metrics import ROUTER, health_of
from fleet.notifications.models import Channel, Message, MessageDelivery, Route, route_of
from fleet.notifications.routing import FAILING_AFTER, DeliveryState, MessageState, route_wording
from fleet.projections.pages import Page, Segment, read_page
from fleet.projections.visibility import visible

OWN = "For oneself alone, and not the installation's."
CAN_CHANGE = "Whether the caller may change it."
# Counting stops here: one is enough for an alarm.
MOST = 100


@dataclass(frozen=True, slots=True)
class NotificationAlarm:
    """Health of notifications, with the numbers behind it."""

    health: NotificationHealth
    channels: int
    failing: int
    undelivered: int

    @property
    def quiet(self) -> bool:
        return self.health is NotificationHealth.WORKS


def notification_alarm(*, now: datetime) -> NotificationAlarm:
    """Return the health of notifications. Four queries, each by index or over the few channels."""
    counted = (
        visible(Channel)
        .filter(enabled=True, deleted_at=None)
        .aggregate(channels=Count("pk"), failing=Count("pk", filter=Q(failures__gte=FAILING_AFTER)))
    )
    unrouted = visible(Message).filter(state=MessageState.UNROUTED.value, event__isnull=False).order_by("-id")
    found = sum(at > now - RECENT for at in unrouted.values_list("created_at", flat=True)[:MOST])
    newest = visible(MessageDelivery).filter(created_at__gt=now - RECENT, state=DeliveryState.GIVEN_UP.value)
    found += newest.exclude(moment="test").order_by()[:MOST].count()
    routed_at = visible(LastRun).filter(name=ROUTER).values_list("ran_at", flat=True).first()
    telling = NotificationFacts(**counted, undelivered=found, routed_at=routed_at)
    return NotificationAlarm(
        notification_health(telling, now=now), telling.channels, telling.failing, telling.undelivered
    )


def any_channel() -> bool:
    """Return whether a channel of the installation is enabled. One query."""
    return visible(Channel).filter(owner=None, enabled=True, deleted_at=None).exists()


# Phones and browsers that a user registered for push notifications.


@dataclass(frozen=True, slots=True)
class BrowserRow:
    """A registered browser. Not `enabled`: its push service reported that the subscription has ended."""

    id: int
    name: str
    enabled: bool
    created_at: datetime
    last_ok_at: datetime | None


def own_browsers(*, user_id: int) -> tuple[BrowserRow, ...]:
    """Return the registered browsers of a user, newest first. One query."""
    rows = visible(Channel).filter(owner=user_id, kind="webpush", deleted_at=None).order_by("-id")
    return tuple(from_row(BrowserRow, row) for row in rows)


# Channels and routes of the installation and of the user. Those of other users are not visible.


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """The short form in which others name a channel."""

    id: int
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """One channel. `settings` to `last_answer` are for administrators and owners, None for other readers."""

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


@dataclass(frozen=True, slots=True)
class RouteRow:
    """One route, with its conditions named as in the model."""

    id: int
    name: str
    own: Annotated[bool, OWN]
    enabled: bool
    position: int
    version: Annotated[int, "Moves with each change; a message keeps the one that sent it."]
    wording: Annotated[Reason, "The whole route in one sentence, as it is kept with its messages."]
    channel: Annotated[ChannelRef | None, "Null: every channel of the installation."]
    channel_disabled: Annotated[bool, "Its channel is switched off."]
    moments: tuple[str, ...]
    event_types: tuple[str, ...]
    sources: tuple[str, ...]
    severities: tuple[str, ...]
    set_pattern: str
    service: str
    resource_group: str
    weekdays: tuple[int, ...]
    from_time: time | None
    until_time: time | None
    time_zone: str
    unclaimed_after_seconds: int | None
    before_decide_by_seconds: int | None
    created_at: datetime
    changed_at: datetime
    can_change: Annotated[bool, CAN_CHANGE]


def channel_ref(row: Channel) -> ChannelRef:
    return ChannelRef(row.pk, row.name, row.kind)


def for_reader(person: User | int | None, *, path: str = "") -> Q:
    """Return the condition for rows of the installation or of this user (a row or its id), by the owner at `path`."""
    return Q(**{f"{path}owner": None}) | Q(**{f"{path}owner": person})


def can_change(row: Channel | Route, person: User) -> bool:
    """Return whether this user may change a row that `for_reader` selects."""
    return row.owner_id is not None or rights_of(person).may(Right.ADMINISTER)


def listing(*, person: User, now: datetime) -> tuple[ChannelRow, ...]:
    """Return the installation's channels by name, then the user's own. One query, and one for the user's rights."""
    rows = visible(Channel).filter(for_reader(person), deleted_at=None).order_by("name", "pk")
    return tuple(sorted((_channel(row, person, now) for row in rows), key=lambda row: row.own))


def page(*, person: User, now: datetime, cursor: str | None = None, size: int | None = None) -> Page[ChannelRow]:
    """Return the installation's channels by name, then the user's own. Up to two queries, and one for the user's
    rights.
    """
    rows = visible(Channel).filter(deleted_at=None)
    parts = [Segment(rows.filter(owner=None), "name"), Segment(rows.filter(owner=person), "name")]
    return read_page(parts, cursor=cursor, size=size).map(lambda found: [_channel(row, person, now) for row in found])


def detail(*, channel_id: int, person: User, now: datetime) -> ChannelRow | None:
    """Return one channel; None if there is none for this user. One query."""
    row = visible(Channel).filter(for_reader(person), pk=channel_id, deleted_at=None).first()
    return _channel(row, person, now) if row else None


def _channel(row: Channel, person: User, now: datetime) -> ChannelRow:
    open_to = can_change(row, person)
    kind = KINDS.get(row.kind)
    return from_row(
        ChannelRow,
        row,
        id=row.pk,
        own=row.owner_id is not None,
        takes_messages=kind is not None and kind.messages,
        health=health_of(row, now=now),
        settings={name: row.settings[name] for name in kind.fields if name in row.settings}
        if open_to and kind
        else None,
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
    found = datetime.fromisoformat(text) if text else None
    return found if found is not None and (after is None or found > after) else None


def routes(*, person: User) -> tuple[RouteRow, ...]:
    """Return the installation's routes in their order, then the user's own. One query, and one for the rights."""
    rows = (
        visible(Route).filter(for_reader(person), deleted_at=None).select_related("channel").order_by("position", "pk")
    )
    return tuple(sorted((_route(row, person) for row in rows), key=lambda row: row.own))


def page_of_routes(*, person: User, cursor: str | None = None, size: int | None = None) -> Page[RouteRow]:
    """Return the installation's routes in their order, then the user's own. Up to two queries, and one for the user's
    rights.
    """
    rows = visible(Route).filter(deleted_at=None).select_related("channel")
    parts = [Segment(rows.filter(owner=None), "position"), Segment(rows.filter(owner=person), "position")]
    return read_page(parts, cursor=cursor, size=size).map(lambda found: [_route(row, person) for row in found])


def route(*, route_id: int, person: User) -> RouteRow | None:
    """Return one route; None if there is none for this user. One query."""
    rows = visible(Route).filter(for_reader(person), pk=route_id, deleted_at=None).select_related("channel")
    row = rows.first()
    return _route(row, person) if row else None


def _route(row: Route, person: User) -> RouteRow:
    channel = row.channel
    return from_row(
        RouteRow,
        row,
        id=row.pk,
        own=row.owner_id is not None,
        wording=route_wording(route_of(row), channel.name if channel else ""),
        channel=channel_ref(channel) if channel else None,
        channel_disabled=channel is not None and not channel.enabled,
        can_change=can_change(row, person),
    )
