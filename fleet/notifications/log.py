"""Queries of the delivery log: messages, deliveries with their attempts, and the notifications about one event.

Pages list deliveries, and separately the messages without a delivery. The API lists messages.
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
from fleet.domain.shapes import InApi, from_row
from fleet.models import AvailabilitySet, Cache, Machine, Maintenance
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import ChannelRef, can_change, channel_ref, for_reader
from fleet.notifications.routing import GROUP, OPEN_DELIVERIES, REDELIVERABLE, TEST, DeliveryState, MessageState
from fleet.projections.pages import At, OrderedAt, Page, Segment, read_list, read_page
from fleet.projections.places import IdsFilter, PlaceFilter, TimeFilter, VisibleRows
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible

# Messages of a delivery that a list shows; the page of the delivery shows more.
NAMED = 3
# Messages of one event on its page; the log has them all.
MOST_OF_EVENT = 200
# States of messages without a delivery.
UNSENT = (MessageState.WAITING, MessageState.DROPPED, MessageState.UNROUTED)
RELATED = ("event__availability_set", "channel__owner", "delivery")


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One delivery attempt. `took_seconds` and `ok` are None while the result is unknown."""

    number: int
    at: datetime
    took_seconds: Annotated[float | None, "Null while it is under way."]
    ok: Annotated[bool | None, "Null while its result is unknown."]
    status: Annotated[int | None, "The receiver's HTTP or SMTP status."]
    error: Annotated[str, "A code; empty if it succeeded."]
    answer: Annotated[str | None, "What the receiver answered; null if the caller may not change the channel."]


def _attempts(delivery_ids: Iterable[UUID]) -> Mapping[UUID, tuple[AttemptRow, ...]]:
    """Return the attempts of these deliveries by delivery id, oldest first. One query."""
    attempts: dict[UUID, tuple[AttemptRow, ...]] = defaultdict(tuple)
    ids = list(delivery_ids)
    for row in visible(DeliveryAttempt).filter(delivery__in=ids).order_by("delivery", "number") if ids else ():
        took = (row.ended_at - row.at).total_seconds() if row.ended_at else None
        attempts[row.delivery_id] += (from_row(AttemptRow, row, took_seconds=took),)
    return attempts


@dataclass(frozen=True, slots=True)
class SentBy:
    """The route that created a message, in the version of that time."""

    id: int
    name: str
    version: int
    wording: Annotated[Reason | str, "What the route stated when it sent it."]


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One notification for one channel. `channel` is None if it matched no route. `event` is an EventId. `why` is the
    code of the reason why it was not sent.
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
    settled_at: Annotated[datetime | None, InApi.OMITTED]
    resources: Annotated[tuple[str, ...], InApi.OMITTED]
    # Name of another subject than an event; empty if it was deleted or is not visible.
    subject_name: Annotated[str, InApi.OMITTED]


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One delivery to one channel. `messages` contains the first of `count` messages; a test has none.

    `next_at` is the time of the next attempt, or None if there is no further one or it is due now.
    """

    id: UUID
    channel: ChannelRef
    moment: str
    state: DeliveryState
    why: str
    created_at: datetime
    settled_at: datetime | None
    next_at: datetime | None
    count: int
    messages: tuple[MessageRow, ...]
    attempts: tuple[AttemptRow, ...]
    can_redeliver: bool

    @property
    def open(self) -> bool:
        return self.state in OPEN_DELIVERIES


class DeliveryFilter(VisibleRows):
    """Filter of deliveries. `event` is an EventId in any case. `moment` (a notification type) also finds groups that
    contain a message of this type.
    """

    channel = django_filters.NumberFilter(label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in DeliveryState])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.ChoiceFilter(
        method="filter_moment", choices=[(name, name) for name in (*NotificationType, GROUP, TEST)], label="Type"
    )

    model = MessageDelivery

    def filter_event(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        of_event = visible(Message).filter(event__event_id=value.upper(), delivery__isnull=False)
        return queryset.filter(pk__in=of_event.order_by().values("delivery"))

    def filter_moment(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        carried = visible(Message).filter(delivery=OuterRef("pk"), moment=value).order_by()
        return queryset.filter(Q(moment=value) | Q(Exists(carried), moment=GROUP))


class MessageFilter(PlaceFilter):
    """Filter of messages by channel, state, event (EventId in any case), set, service and type. `since` is compared
    with the creation time.
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

    model = Message

    def filter_event(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(event__event_id=value.upper())


def _attempts_of(
    delivery: MessageDelivery | None, person: User, attempts: Mapping[UUID, tuple[AttemptRow, ...]]
) -> tuple[AttemptRow, ...]:
    """Return the attempts of a delivery. The receiver's answers are included only if the user may see the settings of
    the channel.
    """
    if delivery is None:
        return ()
    rows = attempts[delivery.pk]
    return rows if can_change(delivery.channel, person) else tuple(replace(row, answer=None) for row in rows)


def _next_at(row: Message | MessageDelivery | None, *, after: datetime | None = None) -> datetime | None:
    """Return the time of the next attempt to send a message or delivery. None if unknown, or not later than `after`."""
    if row is None or row.channel is None or row.state not in (MessageState.WAITING, DeliveryState.QUEUED):
        return None
    next_at = max(filter(None, [row.due_at, row.channel.held_until]))
    return next_at if after is None or next_at > after else None


def _can_redeliver(delivery: MessageDelivery | None, person: User) -> bool:
    if delivery is None or delivery.state not in REDELIVERABLE:
        return False
    channel = delivery.channel
    return channel.enabled and channel.deleted_at is None and can_change(channel, person)


# Table and name column for each kind of subject.
CALLED: Mapping[str, tuple[Any, str]] = {
    "maintenance": (Maintenance, "cache__host"),
    "cache": (Cache, "host"),
    "machine": (Machine, "resource_name"),
    "set": (AvailabilitySet, "name"),
    "channel": (Channel, "name"),
}


def _names(subjects: Iterable[str]) -> dict[str, str]:
    """Return the names of these subjects by subject. Deleted and invisible ones are omitted. One query for each
    kind.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for subject in subjects:
        kind, _, number = subject.partition(":")
        if kind in CALLED and number.isdecimal():
            wanted[kind].add(int(number))
    return {
        f"{kind}:{pk}": name
        for kind, ids in wanted.items()
        for pk, name in visible(CALLED[kind][0], every=True).filter(pk__in=ids).values_list("pk", CALLED[kind][1])
    }


def _message_rows(
    rows: Sequence[Message], person: User, attempts: Mapping[UUID, tuple[AttemptRow, ...]] | None = None
) -> tuple[MessageRow, ...]:
    """Convert messages to rows. The query must have loaded the `RELATED` rows."""
    if attempts is None:
        attempts = _attempts({row.delivery_id for row in rows if row.delivery_id is not None})
    names = _names(row.subject for row in rows if row.event_id is None)
    messages = []
    for row in rows:
        event, delivery = row.event, row.delivery
        if delivery is not None and row.channel is not None:
            # Loaded with the message.
            delivery.channel = row.channel
        sent_by = (row.data.get("route", ""), row.route_version or 1, read_reason(row.data.get("wording", "")))
        messages.append(
            from_row(
                MessageRow,
                row,
                event=event.event_id if event else None,
                event_type=event.event_type if event else None,
                resources=tuple(event.resources) if event else (),
                set=set_ref(event.availability_set) if event else None,
                channel=channel_ref(row.channel, person) if row.channel else None,
                route=SentBy(row.route_id, *sent_by) if row.route_id else None,
                delivery=row.delivery_id,
                attempts=_attempts_of(delivery, person, attempts),
                next_attempt_at=_next_at(row if row.state == MessageState.WAITING else delivery),
                can_redeliver=_can_redeliver(delivery, person),
                settled_at=delivery.settled_at if delivery else None,
                subject_name=names.get(row.subject, ""),
            )
        )
    return tuple(messages)


# Messages, for the API; and those without a delivery, for pages.


def _for(person: User, rows: QuerySet[Message] | None = None) -> QuerySet[Message]:
    """Return those of these messages (None: of all) that a user may see: those of the installation's channels, of their
    own channels, and those that matched no route.
    """
    rows = visible(Message) if rows is None else rows
    return rows.filter(Q(channel=None) | for_reader(person, path="channel__")).select_related(*RELATED)


def listing(*, person: User, rows: QuerySet[Message] | None = None, **at: Unpack[OrderedAt]) -> Page[MessageRow]:
    """Return a page of those of these messages that this user may see, newest first. Two queries, one for the user's
    rights, and one for each kind of subject.
    """
    page = read_list(Segment(_for(person, rows), "created_at", descending=True), **at)
    return page.map(partial(_message_rows, person=person))


def detail(*, message_id: int, person: User) -> MessageRow | None:
    """Return one message (row id), or None if this user may not see it. Three queries."""
    rows = _for(person).filter(pk=message_id)
    return next(iter(_message_rows(list(rows), person)), None)


def unsent(*, person: User, filters: Mapping[str, Any], **at: Unpack[At]) -> Page[MessageRow]:
    """Return a page of the messages without a delivery that this user may see, newest first. Raises
    `BadCursorError`.
    """
    rows = _for(person, MessageFilter(filters).qs.filter(delivery=None))
    return read_page([Segment(rows, "id", descending=True)], **at).map(partial(_message_rows, person=person))


# Deliveries, for pages.


def channels(*, person: User) -> tuple[ChannelRef, ...]:
    """Return the channels by which this user may filter the log, including deleted ones. One query."""
    rows = visible(Channel).filter(for_reader(person)).select_related("owner").order_by("name", "pk")
    return tuple(channel_ref(row, person) for row in rows)


def _deliveries(named: int, person: User, filters: Mapping[str, Any] | None = None) -> QuerySet[MessageDelivery]:
    rows = DeliveryFilter(filters or {}).qs
    carried = visible(Message).filter(delivery=OuterRef("pk")).order_by()
    count = carried.values("delivery").annotate(value=Count("pk")).values("value")
    own_or_shared: QuerySet[MessageDelivery] = rows.filter(for_reader(person, path="channel__"))
    return own_or_shared.select_related("channel__owner").annotate(
        count=Coalesce(Subquery(count), 0), first=ArraySubquery(carried.order_by("pk").values("pk")[:named])
    )


def deliveries(
    *, person: User, now: datetime, filters: Mapping[str, Any] | None = None, **at: Unpack[At]
) -> Page[DeliveryRow]:
    """Return a page of the deliveries that this user may see, newest first. Three queries, and one for each kind of
    subject.

    Raises `BadCursorError`.
    """
    rows = [Segment(_deliveries(NAMED, person, filters), "created_at", descending=True)]
    return read_page(rows, **at).map(partial(_delivery_rows, person=person, now=now))


def delivery(*, delivery_id: UUID, person: User, now: datetime) -> DeliveryRow | None:
    """Return one delivery with more messages than in the list, or None if this user may not see it."""
    rows = _deliveries(100, person).filter(pk=delivery_id)
    return next(iter(_delivery_rows(list(rows), person=person, now=now)), None)


def _delivery_rows(rows: Sequence[Any], *, person: User, now: datetime) -> Sequence[DeliveryRow]:
    attempts = _attempts(row.pk for row in rows)
    messages = visible(Message).filter(pk__in=[pk for row in rows for pk in row.first]).select_related(*RELATED)
    by_id = {row.id: row for row in _message_rows(list(messages), person, attempts)} if rows else {}
    return [
        from_row(
            DeliveryRow,
            row,
            channel=channel_ref(row.channel, person),
            next_at=_next_at(row, after=now),
            messages=tuple(by_id[pk] for pk in row.first if pk in by_id),
            attempts=_attempts_of(row, person, attempts),
            # A test is requested at its channel instead.
            can_redeliver=bool(row.count) and _can_redeliver(row, person),
        )
        for row in rows
    ]


# Notifications of one event, for its page.


@dataclass(frozen=True, slots=True)
class EventNotifications:
    """Notifications about one event. `notified` lists the channels with the time of the first successful delivery, in
    order of time. `failing` has the newest failed message of each failing channel.

    `waiting` is the number of messages still to be sent. `channels`: at least one channel is enabled. `unrouted`: a
    message matched no route. `rows` are the messages, newest first; `more`: there are older ones.
    """

    notified: tuple[tuple[ChannelRef, datetime], ...]
    failing: tuple[MessageRow, ...]
    waiting: int
    unrouted: bool
    channels: bool
    rows: tuple[MessageRow, ...] = field(repr=False)
    more: bool = False


def of_event(event_pk: int, *, person: User) -> EventNotifications:
    """Return the notifications about one event (row id) that this user may see. Three queries, and one for the user's
    rights.
    """
    newest = visible(Message).filter(event=event_pk).select_related(*RELATED).order_by("-pk")[: MOST_OF_EVENT + 1]
    rows = _message_rows(list(newest), person)
    first: dict[ChannelRef, datetime] = {}
    last: dict[ChannelRef, MessageRow] = {}
    # Newest first: the first row of each channel has its newest delivery, the last row its first.
    for row in rows:
        if row.channel is None or not row.attempts:
            continue
        last.setdefault(row.channel, row)
        if row.state is MessageState.SENT and row.settled_at is not None:
            first[row.channel] = min(row.settled_at, first.get(row.channel, row.settled_at))
    return EventNotifications(
        notified=tuple(sorted(first.items(), key=lambda each: each[1])),
        failing=tuple(
            row
            for row in last.values()
            if row.attempts[-1].ok is False and row.state in (MessageState.BATCHED, MessageState.GIVEN_UP)
        ),
        waiting=sum(
            row.state is MessageState.WAITING or (row.state is MessageState.BATCHED and not row.attempts)
            for row in rows
        ),
        unrouted=any(row.state is MessageState.UNROUTED for row in rows),
        channels=visible(Channel).filter(enabled=True, deleted_at=None).exists(),
        rows=rows[:MOST_OF_EVENT],
        more=len(rows) > MOST_OF_EVENT,
    )


# The result of a test, for the API.


@dataclass(frozen=True, slots=True)
class ChannelTrial:
    """State of a test of a channel. `state` is that of the delivery; `ok` is None while the result is unknown."""

    delivery: UUID
    state: DeliveryState
    ok: Annotated[
        bool | None, "Whether the channel took it; null while that is unknown: see the channel's `health` later."
    ]
    attempts: tuple[AttemptRow, ...]


def trial(*, delivery_id: str, person: User) -> ChannelTrial | None:
    """Return the state of the test with this delivery id, or None if the user may not see the receiver's answer. Two
    queries.
    """
    row = visible(MessageDelivery).filter(pk=delivery_id).select_related("channel").first()
    if row is None or not can_change(row.channel, person):
        return None
    attempts = _attempts([row.pk])[row.pk]
    ended = [each.ok for each in attempts if each.took_seconds is not None]
    return ChannelTrial(row.pk, DeliveryState(row.state), ended[-1] if ended else None, attempts)
