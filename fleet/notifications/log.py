"""Queries of the delivery log: deliveries with their attempts, undelivered messages, and notifications of one event.

Pages show deliveries, the API messages.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Unpack
from uuid import UUID

import django_filters
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from fleet.domain.reasons import Reason, read_reason
from fleet.domain.shapes import from_row
from fleet.notifications import news
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery, RouteVersion, route_of
from fleet.notifications.news import Subject
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import ChannelRef, can_change, channel_ref, for_reader
from fleet.notifications.routing import GROUP, TEST, DeliveryState, MessageState, route_wording
from fleet.projections.pages import OrderedAt, Page, Segment, read_list, read_page
from fleet.projections.places import IdsFilter, PlaceFilter, TimeFilter
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible

# Messages of a delivery that a list shows; the page of the delivery shows more.
NAMED = 3
NAMED_ALONE = 100
# Messages of one event on its page; the log has them all.
MOST_OF_EVENT = 200
# States of messages without a delivery.
UNSENT = (MessageState.WAITING, MessageState.DROPPED, MessageState.UNROUTED)
OPEN = (DeliveryState.QUEUED, DeliveryState.SENDING)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt: `took_seconds` and `ok` are None while its result is unknown. `answer` is None for users who may not
    see the channel's settings.
    """

    number: int
    at: datetime
    took_seconds: Annotated[float | None, "Null while it is under way."]
    ok: Annotated[bool | None, "Null while its result is unknown."]
    status: Annotated[int | None, "The receiver's HTTP or SMTP status."]
    error: Annotated[str, "A code; empty if it succeeded."]
    answer: Annotated[str | None, "What the receiver answered; null if the caller may not change the channel."]


def _attempts(delivery_ids: Iterable[UUID]) -> Mapping[UUID, tuple[AttemptRow, ...]]:
    """Return the attempts of these deliveries, oldest first. One query."""
    attempts: dict[UUID, tuple[AttemptRow, ...]] = defaultdict(tuple)
    ids = list(delivery_ids)
    for row in visible(DeliveryAttempt).filter(delivery__in=ids).order_by("delivery", "number") if ids else ():
        took = (row.ended_at - row.at).total_seconds() if row.ended_at else None
        attempts[row.delivery_id] += (from_row(AttemptRow, row, took_seconds=took),)
    return attempts


# Deliveries and undelivered messages, for pages.


@dataclass(frozen=True, slots=True)
class ChannelNamed:
    """A channel on a page. `owner` is the user of a personal channel; its `name` is empty for other users."""

    id: int
    kind: str
    name: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """A message on a page. `channel` is None if it matched no route; `route` names the one that sent it."""

    id: int
    moment: str
    subject: Subject
    at: datetime
    due_at: datetime
    state: MessageState
    why: str
    channel: ChannelNamed | None
    route: str
    delivery_id: UUID | None


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery to one channel. `messages` are the first of its `count`; a test has none.

    `next_at` is the time of the next attempt; None if it is settled or due at once.
    """

    id: UUID
    channel: ChannelNamed
    moment: str
    state: DeliveryState
    why: str
    created_at: datetime
    settled_at: datetime | None
    next_at: datetime | None
    count: int
    messages: tuple[DeliveredMessage, ...] = ()
    tries: tuple[AttemptRow, ...] = ()

    @property
    def open(self) -> bool:
        return self.state in OPEN

    @property
    def last(self) -> AttemptRow | None:
        """The newest attempt."""
        return self.tries[-1] if self.tries else None

    @property
    def may_be_sent_again(self) -> bool:
        """Return whether a user may request it; a test is requested at its channel instead."""
        return self.state in (DeliveryState.DELIVERED, DeliveryState.GIVEN_UP) and bool(self.count)


class DeliveryFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filter of deliveries. `event` is an EventId in any case; `moment` also finds groups with such a message."""

    channel = django_filters.NumberFilter(label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in DeliveryState])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.ChoiceFilter(
        method="filter_moment", choices=[(name, name) for name in (*NotificationType, GROUP, TEST)], label="Type"
    )

    class Meta:
        model = MessageDelivery
        fields: list[str] = []

    def filter_event(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        of_event = visible(Message).filter(event__event_id=value.upper(), delivery__isnull=False)
        return queryset.filter(pk__in=of_event.order_by().values("delivery"))

    def filter_moment(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        carried = visible(Message).filter(delivery=OuterRef("pk"), moment=value).order_by()
        return queryset.filter(Q(moment=value) | Q(Exists(carried), moment=GROUP))


class MessageFilter(PlaceFilter):
    """Filter of messages by channel, state, event (an EventId in any case), its place, and type; `since` is compared
    with their creation.
    """

    set_path = "event__availability_set"

    channel = IdsFilter(field_name="channel", label="The id of a channel; may be repeated.")
    state = django_filters.MultipleChoiceFilter(
        choices=[(state.value, state.value) for state in MessageState], label="May be given several times."
    )
    event = django_filters.CharFilter(method="filter_event", label="An EventId.")
    moment = django_filters.MultipleChoiceFilter(
        choices=[(moment.value, moment.value) for moment in NotificationType], label="May be given several times."
    )
    since = TimeFilter(field_name="created_at", lookup_expr="gte", label="Messages made at or after this time.")

    class Meta:
        model = Message
        fields: list[str] = []

    def filter_event(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(event__event_id=value.upper())


def channels(*, user_id: int) -> tuple[ChannelNamed, ...]:
    """Return the channels that filter the log for this user, also deleted ones. One query."""
    rows = visible(Channel).filter(for_reader(user_id)).select_related("owner").order_by("name", "pk")
    return tuple(_named(row, user_id) for row in rows)


def _named(row: Channel, user_id: int | None) -> ChannelNamed:
    owner = row.owner.get_username() if row.owner else ""
    name = row.name if row.owner_id is None or row.owner_id == user_id else ""
    return ChannelNamed(id=row.pk, kind=row.kind, name=name, owner=owner)


def _deliveries(named: int, user_id: int, filters: Mapping[str, Any] | None = None) -> QuerySet[MessageDelivery]:
    rows = DeliveryFilter(filters or {}, queryset=visible(MessageDelivery)).qs
    carried = visible(Message).filter(delivery=OuterRef("pk")).order_by()
    count = carried.values("delivery").annotate(value=Count("pk")).values("value")
    found: QuerySet[MessageDelivery] = rows.filter(for_reader(user_id, path="channel__"))
    return found.select_related("channel__owner").annotate(
        count=Coalesce(Subquery(count), 0), first=ArraySubquery(carried.order_by("pk").values("pk")[:named])
    )


def deliveries(
    *,
    user_id: int,
    now: datetime,
    filters: Mapping[str, Any] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[DeliveryRow]:
    """Return deliveries that this user may see, newest first. Three queries, and one for each kind of subject.

    Raises `BadCursorError`.
    """
    rows = [Segment(_deliveries(NAMED, user_id, filters), "created_at", descending=True)]
    return read_page(rows, cursor=cursor, size=size).map(partial(_delivery_rows, user_id=user_id, now=now))


def delivery(*, delivery_id: UUID, user_id: int, now: datetime) -> DeliveryRow | None:
    """Return one delivery with more of its messages; None if it is not visible to this user."""
    rows = _deliveries(NAMED_ALONE, user_id).filter(pk=delivery_id)
    return next(iter(_delivery_rows(list(rows), user_id=user_id, now=now)), None)


def unsent(
    *,
    user_id: int,
    filters: Mapping[str, Any] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[DeliveredMessage]:
    """Return messages without a delivery that this user may see, newest first. One query, and one for each kind of
    subject.

    Raises `BadCursorError`.
    """
    rows = MessageFilter(filters or {}, queryset=visible(Message)).qs
    rows = _loaded(rows.filter(Q(channel=None) | for_reader(user_id, path="channel__"), delivery=None))
    page = read_page([Segment(rows, "id", descending=True)], cursor=cursor, size=size)
    return page.map(partial(_delivered_messages, user_id=user_id))


def _loaded(rows: QuerySet[Message]) -> QuerySet[Message]:
    return rows.select_related("channel__owner", "route", "event__availability_set")


def _delivery_rows(rows: Sequence[Any], *, user_id: int, now: datetime) -> Sequence[DeliveryRow]:
    ids = [pk for row in rows for pk in row.first]
    shown = _delivered_messages(list(_loaded(visible(Message).filter(pk__in=ids))), user_id=user_id) if rows else ()
    by_id = {message.id: message for message in shown}
    attempts = _attempts(row.pk for row in rows)
    return [
        _delivery_row(
            row,
            user_id=user_id,
            now=now,
            count=row.count,
            messages=tuple(by_id[pk] for pk in row.first if pk in by_id),
            tries=attempts[row.pk],
        )
        for row in rows
    ]


def _delivery_row(row: MessageDelivery, *, user_id: int | None, now: datetime, **shown: Any) -> DeliveryRow:
    held = row.channel.held_until if row.state in OPEN else None
    next_at = held if held is not None and held > now else None
    return from_row(DeliveryRow, row, channel=_named(row.channel, user_id), next_at=next_at, **shown)


def _delivered_messages(rows: Sequence[Message], *, user_id: int | None) -> tuple[DeliveredMessage, ...]:
    """Shape rows that have their channel, route and event loaded. One query for each other kind of subject."""
    names = news.names(row.subject for row in rows)
    return tuple(
        from_row(
            DeliveredMessage,
            row,
            subject=news.subject(row, names),
            channel=_named(row.channel, user_id) if row.channel else None,
            route=row.route.name if row.route else "",
        )
        for row in rows
    )


# Notifications of one event, for its page.


@dataclass(frozen=True, slots=True)
class EventNotifications:
    """Notifications of one event. `notified` are channels with the time of their first delivery, in order; `failing`
    are the newest deliveries of channels where those failed.

    `waiting` counts messages still to be sent. `channels`: whether any is enabled; `unrouted`: a message matched no
    route. `rows` are the messages, newest first, each with its delivery; `more`: there are older ones.
    """

    notified: tuple[tuple[ChannelNamed, datetime], ...]
    failing: tuple[DeliveryRow, ...]
    waiting: int
    unrouted: bool
    channels: bool
    rows: tuple[tuple[DeliveredMessage, DeliveryRow | None], ...] = field(repr=False)
    more: bool = False


def of_event(event_pk: int, *, user_id: int | None, now: datetime) -> EventNotifications:
    """Return the notifications of one event (row id) for this user. Four queries."""
    newest = list(_loaded(visible(Message).filter(event=event_pk)).order_by("-pk")[: MOST_OF_EVENT + 1])
    ids = {row.delivery_id for row in newest if row.delivery_id}
    attempts = _attempts(ids)
    sent = {
        row.pk: _delivery_row(row, user_id=user_id, now=now, count=0, messages=(), tries=attempts[row.pk])
        for row in visible(MessageDelivery).filter(pk__in=ids).select_related("channel__owner")
    }
    messages = _delivered_messages(newest, user_id=user_id)
    rows = tuple((row, sent.get(row.delivery_id) if row.delivery_id else None) for row in messages)
    first: dict[ChannelNamed, datetime] = {}
    last: dict[ChannelNamed, DeliveryRow] = {}
    # Newest first: the first row of each channel has its newest delivery, the last row its first.
    for row, delivered in rows:
        if row.channel is None or delivered is None or not delivered.tries:
            continue
        last.setdefault(row.channel, delivered)
        if row.state is MessageState.SENT and delivered.settled_at is not None:
            first[row.channel] = min(delivered.settled_at, first.get(row.channel, delivered.settled_at))
    return EventNotifications(
        notified=tuple(sorted(first.items(), key=lambda each: each[1])),
        failing=tuple(row for row in last.values() if _is_failing(row)),
        waiting=sum(
            row.state is MessageState.WAITING or (delivered is not None and delivered.open and not delivered.tries)
            for row, delivered in rows
        ),
        unrouted=any(row.state is MessageState.UNROUTED for row in messages),
        channels=visible(Channel).filter(enabled=True, deleted_at=None).exists(),
        rows=rows[:MOST_OF_EVENT],
        more=len(rows) > MOST_OF_EVENT,
    )


def _is_failing(row: DeliveryRow) -> bool:
    failed = row.last is not None and row.last.ok is False
    return failed and (row.open or row.state is DeliveryState.GIVEN_UP)


# Messages with their attempts, for the API.


@dataclass(frozen=True, slots=True)
class SentBy:
    """The route that sent a message, in the version that did."""

    id: int
    name: str
    version: int
    wording: Annotated[Reason | str, "What the route stated when it sent it."]


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One notification for one channel; without a channel, it matched no route. `event` is an EventId, `delivery` the
    id under which it was sent, alone or with others. `why` is the code of the reason why it was dropped or given
    up.
    """

    id: int
    moment: str
    subject: Annotated[str, "What belongs together, such as `event:7`."]
    event: Annotated[str | None, "The EventId; null where it is about something else."]
    event_type: str | None
    set: SetRef | None
    channel: Annotated[ChannelRef | None, "Null where no route wanted it: nothing was sent."]
    state: MessageState
    at: datetime
    created_at: datetime
    due_at: Annotated[datetime, "Not sent before then."]
    severity: str
    service: str
    drill: bool
    why: Annotated[str, "A code: why it was dropped or given up."]
    route: Annotated[SentBy | None, "The route that sent it."]
    delivery: Annotated[UUID | None, "The id under which it was sent, alone or with others; the same at each attempt."]
    attempts: tuple[AttemptRow, ...]
    next_attempt_at: Annotated[datetime | None, "Null where none comes."]
    can_redeliver: Annotated[bool, "Whether the caller may have it sent again."]


RELATED = ("event__availability_set", "channel", "route", "delivery")


def messages_for(person: User) -> QuerySet[Message]:
    """Return the messages of the installation's channels, of this user's own, and those that matched no route."""
    return visible(Message).filter(Q(channel=None) | for_reader(person, path="channel__"))


def listing(rows: QuerySet[Message], *, person: User, **at: Unpack[OrderedAt]) -> Page[MessageRow]:
    """Return messages, newest first. Three queries, and one for the user's rights."""
    page = read_list(Segment(rows.select_related(*RELATED), "created_at", descending=True), **at)
    return page.map(lambda messages: _message_rows(messages, person))


def detail(*, message_id: int, person: User) -> MessageRow | None:
    """Return one message; None if it is not visible to this user. Three queries."""
    rows = messages_for(person).filter(pk=message_id).select_related(*RELATED)
    return next(iter(_message_rows(list(rows), person)), None)


def sent_by(messages: Iterable[Message]) -> dict[int, SentBy]:
    """Return the route of each of these messages (by row id; with `route` selected), in the version that sent it. One
    query.

    Without a record of that version, return the current route if it has not changed since.
    """
    routed = [(row, row.route) for row in messages if row.route is not None]
    versions = {
        (kept.route_id, kept.version): kept
        for kept in visible(RouteVersion).filter(
            route__in={route.pk for _, route in routed}, version__in={row.route_version for row, _ in routed}
        )
    }
    routes = {}
    for row, route in routed:
        version = row.route_version or route.version
        kept = versions.get((route.pk, version))
        if kept is not None:
            routes[row.pk] = SentBy(route.pk, kept.name, version, read_reason(kept.wording))
        elif version == route.version:
            channel = row.channel.name if route.channel_id and row.channel else ""
            routes[row.pk] = SentBy(route.pk, route.name, version, route_wording(route_of(route), channel))
    return routes


def _message_rows(rows: Sequence[Message], person: User) -> tuple[MessageRow, ...]:
    attempts = _attempts({row.delivery_id for row in rows if row.delivery_id is not None})
    routes = sent_by(rows)
    return tuple(
        _message_row(row, person, attempts[row.delivery_id] if row.delivery_id else (), routes) for row in rows
    )


def _message_row(
    row: Message, person: User, attempts: tuple[AttemptRow, ...], routes: Mapping[int, SentBy]
) -> MessageRow:
    channel = row.channel
    changeable = channel is not None and can_change(channel, person)
    sent = row.delivery is not None and row.delivery.state in (DeliveryState.DELIVERED, DeliveryState.GIVEN_UP)
    usable = channel is not None and channel.enabled and channel.deleted_at is None
    return from_row(
        MessageRow,
        row,
        id=row.pk,
        event=row.event.event_id if row.event else None,
        event_type=row.event.event_type if row.event else None,
        set=set_ref(row.event.availability_set) if row.event else None,
        channel=channel_ref(channel) if channel else None,
        route=routes.get(row.pk),
        delivery=row.delivery_id,
        attempts=attempts if changeable else tuple(replace(each, answer=None) for each in attempts),
        next_attempt_at=_next_attempt_at(row),
        can_redeliver=changeable and sent and usable,
    )


def _next_attempt_at(row: Message) -> datetime | None:
    """Return when a message is sent next, as far as known."""
    if row.channel is None:
        return None
    if row.state == MessageState.WAITING.value:
        due_at: datetime | None = row.due_at
    elif row.delivery is not None and row.delivery.state == DeliveryState.QUEUED.value:
        due_at = row.delivery.due_at
    else:
        return None
    return max(filter(None, [due_at, row.channel.held_until]))


@dataclass(frozen=True, slots=True)
class ChannelTrial:
    """State of a test. `state` is the delivery's; `ok` is None while the result is unknown."""

    delivery: UUID
    state: DeliveryState
    ok: Annotated[
        bool | None, "Whether the channel took it; null while that is unknown: see the channel's `health` later."
    ]
    attempts: tuple[AttemptRow, ...]


def trial(*, delivery_id: str, person: User) -> ChannelTrial | None:
    """Return the state of a test, of a channel whose answers this user may see. Two queries."""
    row = visible(MessageDelivery).filter(pk=delivery_id).select_related("channel").first()
    if row is None or not can_change(row.channel, person):
        return None
    attempts = _attempts([row.pk])[row.pk]
    ended = [each.ok for each in attempts if each.took_seconds is not None]
    return ChannelTrial(row.pk, DeliveryState(row.state), ended[-1] if ended else None, attempts)
