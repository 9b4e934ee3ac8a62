"""Queries and filters of deliveries: sent with each attempt, or not sent with the reason."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import django_filters
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from fleet.domain.shapes import from_row
from fleet.notifications import news
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery
from fleet.notifications.news import Subject
from fleet.notifications.queries import for_reader
from fleet.notifications.routing import GROUP, TEST, DeliveryState, MessageState, NotificationType
from fleet.projections.pages import Page, Segment, read_page
from fleet.projections.places import IdsFilter, PlaceFilter, TimeFilter
from fleet.projections.visibility import visible

# So many of the messages of one post are named; the post's own page has more.
NAMED = 3
NAMED_ALONE = 100
# What has no post: it waits, nobody needed to hear of it any more, or no route wanted it.
UNSENT = (MessageState.WAITING, MessageState.DROPPED, MessageState.UNROUTED)


@dataclass(frozen=True, slots=True)
class ChannelNamed:
    """`owner` is the name of who has it alone, empty for the installation's. What others have alone has no `name`."""

    id: int
    kind: str
    name: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryTry:
    """One try. `took_seconds` is None, and so is `ok`, while nobody knows how it went."""

    number: int
    at: datetime
    ended_at: datetime | None
    ok: bool | None
    status: int | None
    error: str
    answer: str

    @property
    def took_seconds(self) -> float | None:
        return None if self.ended_at is None else (self.ended_at - self.at).total_seconds()


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """One moment for one channel. `channel` is None where no route wanted it; `route` names the one that did."""

    id: int
    moment: str
    subject: Subject
    at: datetime
    due_at: datetime
    severity: str
    only_if: str
    drill: bool
    state: MessageState
    why: str
    channel: ChannelNamed | None
    route: str
    delivery_id: UUID | None


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One post to one channel. `messages` are the first of the `count` that it carries; a test carries none.

    `next_at` is when it is tried again; None where it is settled, or is tried as soon as may be.
    """

    id: UUID
    channel: ChannelNamed
    moment: str
    group: str
    state: DeliveryState
    why: str
    created_at: datetime
    settled_at: datetime | None
    next_at: datetime | None
    count: int
    messages: tuple[DeliveredMessage, ...] = ()
    tries: tuple[DeliveryTry, ...] = ()

    @property
    def open(self) -> bool:
        return self.state in (DeliveryState.QUEUED, DeliveryState.SENDING)

    @property
    def last(self) -> DeliveryTry | None:
        """The newest attempt."""
        return self.tries[-1] if self.tries else None

    @property
    def may_be_sent_again(self) -> bool:
        """Whether somebody may ask for that; a test is made anew instead."""
        return self.state in (DeliveryState.DELIVERED, DeliveryState.GIVEN_UP) and bool(self.count)


def channels(*, user_id: int) -> tuple[ChannelNamed, ...]:
    """Every channel that this person may know by name, also deleted ones, to narrow down the log by. One query."""
    rows = visible(Channel).filter(for_reader(user_id)).select_related("owner").order_by("name", "pk")
    return tuple(_named(row, user_id) for row in rows)


def _named(row: Channel, user_id: int | None) -> ChannelNamed:
    owner = row.owner.get_username() if row.owner else ""
    name = row.name if row.owner_id is None or row.owner_id == user_id else ""
    return ChannelNamed(id=row.pk, kind=row.kind, name=name, owner=owner)


def _posts(named: int, rows: QuerySet[MessageDelivery] | None = None) -> QuerySet[MessageDelivery]:
    carried = visible(Message).filter(delivery=OuterRef("pk")).order_by()
    count = carried.values("delivery").annotate(value=Count("pk")).values("value")
    found = visible(MessageDelivery) if rows is None else rows
    return found.select_related("channel__owner").annotate(
        count=Coalesce(Subquery(count), 0),
        first=ArraySubquery(carried.order_by("pk").values("pk")[:named]),
    )


def sent(
    *,
    user_id: int,
    now: datetime,
    posts: QuerySet[MessageDelivery] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[DeliveryRow]:
    """What this person may know of, newest first; `posts` narrows them down.

    Three queries, and one for each kind of what they are about.

    Raises `BadCursorError`.
    """
    rows = _posts(NAMED, posts).filter(for_reader(user_id, path="channel__"))
    found = read_page([Segment(rows, "created_at", descending=True)], cursor=cursor, size=size)
    return found.map(partial(_shaped, user_id=user_id, now=now))


def post(*, delivery_id: UUID, user_id: int, now: datetime) -> DeliveryRow | None:
    """One post with more of its messages; None where there is none for this person."""
    row = _posts(NAMED_ALONE).filter(for_reader(user_id, path="channel__"), pk=delivery_id).first()
    return _shaped([row], user_id=user_id, now=now)[0] if row else None


def unsent(
    *,
    user_id: int,
    messages: QuerySet[Message] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[DeliveredMessage]:
    """Messages that this person may know of and that no post carries, newest first.

    One query, and one for each kind of what they are about.

    Raises `BadCursorError`.
    """
    rows = messages if messages is not None else visible(Message)
    rows = _loaded(rows.filter(Q(channel=None) | for_reader(user_id, path="channel__"), delivery=None))
    page = read_page([Segment(rows, "id", descending=True)], cursor=cursor, size=size)
    return page.map(partial(_messages, user_id=user_id))


def of_event(
    event_pk: int, *, user_id: int | None, now: datetime, limit: int
) -> tuple[tuple[DeliveredMessage, ...], dict[UUID, DeliveryRow]]:
    """The newest messages of one event (row id), and the posts that carry them. Three queries."""
    rows = list(_loaded(visible(Message).filter(event=event_pk)).order_by("-pk")[:limit])
    ids = {row.delivery_id for row in rows if row.delivery_id}
    posts = list(visible(MessageDelivery).filter(pk__in=ids).select_related("channel__owner"))
    told = _messages(rows, user_id=user_id)
    carried: dict[UUID, list[DeliveredMessage]] = defaultdict(list)
    for row in told:
        if row.delivery_id:
            carried[row.delivery_id].append(row)
    tries = _tries(ids)
    found = {
        one.pk: _post(one, tuple(carried[one.pk]), tries.get(one.pk, ()), user_id=user_id, now=now) for one in posts
    }
    return told, found


def _loaded(rows: QuerySet[Message]) -> QuerySet[Message]:
    return rows.select_related("channel__owner", "route", "event__availability_set")


def _shaped(rows: Sequence[Any], *, user_id: int, now: datetime) -> Sequence[DeliveryRow]:
    ids = [pk for row in rows for pk in row.first]
    told = {row.id: row for row in _messages(list(_loaded(visible(Message).filter(pk__in=ids))), user_id=user_id)}
    tries = _tries([row.pk for row in rows])
    return [
        replace(
            _post(
                row,
                tuple(told[pk] for pk in row.first if pk in told),
                tries.get(row.pk, ()),
                user_id=user_id,
                now=now,
            ),
            count=row.count,
        )
        for row in rows
    ]


def _tries(ids: Iterable[UUID]) -> Mapping[UUID, tuple[DeliveryTry, ...]]:
    found: dict[UUID, tuple[DeliveryTry, ...]] = defaultdict(tuple)
    for row in visible(DeliveryAttempt).filter(delivery__in=list(ids)).order_by("delivery", "number"):
        found[row.delivery_id] += (from_row(DeliveryTry, row),)
    return found


def _post(
    row: MessageDelivery,
    messages: tuple[DeliveredMessage, ...],
    tries: tuple[DeliveryTry, ...],
    *,
    user_id: int | None,
    now: datetime,
) -> DeliveryRow:
    held = row.channel.held_until
    still_open = row.state in (DeliveryState.QUEUED.value, DeliveryState.SENDING.value)
    return from_row(
        DeliveryRow,
        row,
        channel=_named(row.channel, user_id),
        count=len(messages),
        messages=messages,
        tries=tries,
        next_at=held if still_open and held is not None and held > now else None,
    )


def _messages(rows: Sequence[Message], *, user_id: int | None) -> tuple[DeliveredMessage, ...]:
    """Rows that have their channel, route and event loaded. One query for each kind of what else they are about."""
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


# What the log of messages out may be narrowed down to.

MOMENTS = [(moment.value, moment.value) for moment in NotificationType]


class DeliveryFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Posts. `event` is an EventId in any case; `moment` also finds posts that carry it among others."""

    channel = django_filters.NumberFilter(label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in DeliveryState])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.ChoiceFilter(
        method="filter_moment", choices=[*MOMENTS, (GROUP, GROUP), (TEST, TEST)], label="NotificationType"
    )

    class Meta:
        model = MessageDelivery
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, visible(MessageDelivery) if queryset is None else queryset, **kwargs)

    def filter_event(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        of_event = visible(Message).filter(event__event_id=value.upper(), delivery__isnull=False)
        return queryset.filter(pk__in=of_event.order_by().values("delivery"))

    def filter_moment(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        carried = visible(Message).filter(delivery=OuterRef("pk"), moment=value).order_by()
        return queryset.filter(Q(moment=value) | Q(Exists(carried), moment=GROUP))


class UnsentFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Messages that no post carries. `event` is an EventId in any case."""

    channel = django_filters.NumberFilter(label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in UNSENT])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.ChoiceFilter(choices=MOMENTS, label="NotificationType")

    class Meta:
        model = Message
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, visible(Message) if queryset is None else queryset, **kwargs)

    def filter_event(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(event__event_id=value.upper())


class MessageFilter(PlaceFilter):
    """Messages by channel, state, event (an EventId in any case) and its place, and moment; `since` goes by when they
    were made.
    """

    set_path = "event__availability_set"

    channel = IdsFilter(field_name="channel", label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in MessageState])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.MultipleChoiceFilter(choices=[(moment.value, moment.value) for moment in NotificationType])
    since = TimeFilter(field_name="created_at", lookup_expr="gte", label="Since")

    class Meta:
        model = Message
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, visible(Message) if queryset is None else queryset, **kwargs)

    def filter_event(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(event__event_id=value.upper())
