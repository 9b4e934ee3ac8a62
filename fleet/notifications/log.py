"""Queries of the delivery log, and of who was notified about an event."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from fleet.domain.reasons import Reason, read_reason
from fleet.domain.shapes import from_row
from fleet.notifications import deliveries
from fleet.notifications.deliveries import ChannelNamed, DeliveredMessage, DeliveryRow
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery, RouteVersion, route_of
from fleet.notifications.queries import ChannelRef, channel_ref, for_reader, may_change
from fleet.notifications.routing import DeliveryState, MessageState, route_wording
from fleet.projections.pages import Page, Segment, ordered, read_page
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try: `took_seconds` is None while it is under way. `ok` is None where nobody knows how it went. `answer` is
    None for who may not see the channel's settings.
    """

    number: int
    at: datetime
    took_seconds: float | None
    ok: bool | None
    status: int | None
    error: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class SentBy:
    """The route that sent it, as it said when it did."""

    id: int
    name: str
    version: int
    wording: Reason | str


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One moment for one channel; without one no route wanted it. `event` is an EventId, `delivery` the id under which
    it went out, with others or alone. `why`: a code, why it was dropped or given up.
    """

    id: int
    moment: str
    subject: str
    event: str | None
    event_type: str | None
    set: SetRef | None
    channel: ChannelRef | None
    state: MessageState
    at: datetime
    created_at: datetime
    due_at: datetime
    severity: str
    service: str
    drill: bool
    why: str
    route: SentBy | None
    delivery: UUID | None
    attempts: tuple[AttemptRow, ...]
    next_attempt_at: datetime | None
    may_send_again: bool


BESIDE = ("event__availability_set", "channel", "route", "delivery")


def messages_for(person: User) -> QuerySet[Message]:
    """The messages of the installation's channels and of this person's own, and those that no route wanted."""
    return visible(Message).filter(Q(channel=None) | for_reader(person, path="channel__"))


def listing(
    rows: QuerySet[Message], *, person: User, order: str = "", cursor: str | None = None, size: int | None = None
) -> Page[MessageRow]:
    """Newest first. Three queries, and one for the person's rights."""
    rows = rows.select_related(*BESIDE)
    own = [Segment(rows, "created_at", descending=True)]
    page = read_page(ordered(rows, order, own), cursor=cursor, size=size)
    return page.map(lambda found: _rows(found, person))


def detail(*, message_id: int, person: User) -> MessageRow | None:
    """One message; None where there is none for this person. Three queries."""
    found = messages_for(person).filter(pk=message_id).select_related(*BESIDE)
    return next(iter(_rows(list(found), person)), None)


def sent_by(messages: Collection[Message]) -> dict[int, SentBy]:
    """What the route of each of these messages (by row id; with `route` selected) said when it sent it. One query.

    Of a version that nobody wrote down it is what the route says now, as long as it has not changed since.
    """
    routes = {row.route_id for row in messages if row.route_id is not None}
    kept: dict[tuple[int, int | None], RouteVersion] = {}
    if routes:
        versions = {row.route_version for row in messages if row.route_version is not None}
        for one in visible(RouteVersion).filter(route__in=routes, version__in=versions):
            kept[one.route_id, one.version] = one
    found = {}
    for row in messages:
        if row.route is None or row.route_id is None:
            continue
        version = row.route_version or row.route.version
        said = kept.get((row.route_id, version))
        if said is not None:
            found[row.pk] = SentBy(row.route_id, said.name, version, read_reason(said.wording))
        elif version == row.route.version:
            wording = route_wording(
                route_of(row.route), row.channel.name if row.route.channel_id and row.channel else ""
            )
            found[row.pk] = SentBy(row.route_id, row.route.name, version, wording)
    return found


def _rows(rows: Sequence[Message], person: User) -> tuple[MessageRow, ...]:
    tries = _attempts({row.delivery_id for row in rows if row.delivery_id is not None})
    routes = sent_by(rows)
    return tuple(_row(row, person, tries[row.delivery_id] if row.delivery_id else [], routes) for row in rows)


def _attempts(deliveries: Collection[UUID]) -> dict[UUID, list[DeliveryAttempt]]:
    found: dict[UUID, list[DeliveryAttempt]] = defaultdict(list)
    if deliveries:
        for row in visible(DeliveryAttempt).filter(delivery__in=deliveries).order_by("delivery", "number"):
            found[row.delivery_id].append(row)
    return found


def _row(row: Message, person: User, tries: Sequence[DeliveryAttempt], routes: dict[int, SentBy]) -> MessageRow:
    open_to = row.channel is not None and may_change(row.channel, person)
    sent = row.delivery is not None and row.delivery.state in (DeliveryState.DELIVERED, DeliveryState.GIVEN_UP)
    usable = row.channel is not None and row.channel.enabled and row.channel.deleted_at is None
    return from_row(
        MessageRow,
        row,
        id=row.pk,
        event=row.event.event_id if row.event else None,
        event_type=row.event.event_type if row.event else None,
        set=set_ref(row.event.availability_set) if row.event else None,
        channel=channel_ref(row.channel) if row.channel else None,
        route=routes.get(row.pk),
        delivery=row.delivery_id,
        attempts=tuple(_attempt(one, open_to) for one in tries),
        next_attempt_at=_next(row),
        may_send_again=open_to and sent and usable,
    )


def _attempt(row: DeliveryAttempt, open_to: bool) -> AttemptRow:
    took = (row.ended_at - row.at).total_seconds() if row.ended_at else None
    return from_row(AttemptRow, row, took_seconds=took, answer=row.answer if open_to else None)


def _next(row: Message) -> datetime | None:
    """When it goes out next, as far as that is known."""
    if row.channel is None:
        return None
    if row.state == MessageState.WAITING.value:
        first: datetime | None = row.due_at
    elif row.delivery is not None and row.delivery.state == DeliveryState.QUEUED.value:
        first = row.delivery.due_at
    else:
        return None
    return max(filter(None, [first, row.channel.held_until]))


@dataclass(frozen=True, slots=True)
class ChannelTrial:
    """What became of a test so far. `state` is the delivery's; `ok` is None while nobody knows."""

    delivery: UUID
    state: DeliveryState
    ok: bool | None
    attempts: tuple[AttemptRow, ...]


def trial(*, delivery_id: str, person: User) -> ChannelTrial | None:
    """Two queries. Only of a channel of which this person may see the answers."""
    row = visible(MessageDelivery).filter(pk=delivery_id).select_related("channel").first()
    if row is None or not may_change(row.channel, person):
        return None
    tries = _attempts([row.pk])[row.pk]
    state = DeliveryState(row.state)
    ended = [one.ok for one in tries if one.ended_at is not None]
    return ChannelTrial(row.pk, state, ended[-1] if ended else None, tuple(_attempt(one, True) for one in tries))


# Who was told of an event, when, and through what.

# Of one event so many messages are looked at; the log has them all.
MAX_TOLD = 200


@dataclass(frozen=True, slots=True)
class ToldThrough:
    """One channel that was told: when first."""

    channel: ChannelNamed
    at: datetime


@dataclass(frozen=True, slots=True)
class NotTaken:
    """One channel that did not take the newest of it. `next_at`: it is tried again; None where that is over."""

    channel: ChannelNamed
    next_at: datetime | None
    given_up: bool


@dataclass(frozen=True, slots=True)
class WhoWasTold:
    """`told` in the order in which it happened; `failing` are channels that did not take what is newest there.

    `waiting` counts messages that are still to be told. `channels`: whether there are any that could be; `unrouted`: no
    route wanted it. `rows` is the log, newest first, with the posts by their ids; `more` where there are others.
    """

    told: tuple[ToldThrough, ...]
    failing: tuple[NotTaken, ...]
    waiting: int
    unrouted: bool
    channels: bool
    rows: tuple[DeliveredMessage, ...]
    posts: dict[UUID, DeliveryRow]
    more: bool

    @property
    def log(self) -> tuple[tuple[DeliveredMessage, DeliveryRow | None], ...]:
        """Each message with the post that carries it."""
        return tuple((row, self.posts.get(row.delivery_id) if row.delivery_id else None) for row in self.rows)


def told_of(event_pk: int, *, user_id: int | None, now: datetime) -> WhoWasTold:
    """Who was told of one event (row id), for this person. Four queries."""
    rows, carried = deliveries.of_event(event_pk, user_id=user_id, now=now, limit=MAX_TOLD + 1)
    first: dict[ChannelNamed, datetime] = {}
    failing: dict[ChannelNamed, NotTaken | None] = {}
    waiting = 0
    # Newest first: the first of each channel says how it stands there, the last when it was told.
    for row in rows:
        post = carried.get(row.delivery_id) if row.delivery_id else None
        if row.state is MessageState.WAITING or (post and post.open and not post.tries):
            waiting += 1
        if row.channel is None or post is None or not post.tries:
            continue
        if row.state is MessageState.SENT and post.settled_at is not None:
            first[row.channel] = min(post.settled_at, first.get(row.channel, post.settled_at))
        failing.setdefault(row.channel, _not_taken(row.channel, post))
    return WhoWasTold(
        told=tuple(ToldThrough(channel, at) for channel, at in sorted(first.items(), key=lambda one: one[1])),
        failing=tuple(one for one in failing.values() if one),
        waiting=waiting,
        unrouted=any(row.state is MessageState.UNROUTED for row in rows),
        channels=visible(Channel).filter(enabled=True, deleted_at=None).exists(),
        rows=rows[:MAX_TOLD],
        posts=carried,
        more=len(rows) > MAX_TOLD,
    )


def _not_taken(channel: ChannelNamed, post: DeliveryRow) -> NotTaken | None:
    last = post.last
    if last is None or last.ok is not False or not (post.open or post.state is DeliveryState.GIVEN_UP):
        return None
    return NotTaken(channel, post.next_at, given_up=not post.open)
