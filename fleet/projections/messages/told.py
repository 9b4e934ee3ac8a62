"""Who was told of an event, when, and through what."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Min

from fleet.domain.messages.states import DeliveryState, MessageState
from fleet.models import Channel, Message
from fleet.projections.messages import posts
from fleet.projections.messages.posts import ChannelNamed, PostedMessage, PostRow
from fleet.projections.sight import seen

# Of one event so many messages are looked at; the log has them all.
MOST = 200


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
    rows: tuple[PostedMessage, ...]
    posts: dict[UUID, PostRow]
    more: bool

    @property
    def log(self) -> tuple[tuple[PostedMessage, PostRow | None], ...]:
        """Each message with the post that carries it."""
        return tuple((row, self.posts.get(row.delivery_id) if row.delivery_id else None) for row in self.rows)


def told_of(event_pk: int, *, user_id: int | None, now: datetime) -> WhoWasTold:
    """Who was told of one event (row id), for this person. Four queries."""
    rows, carried = posts.of_event(event_pk, user_id=user_id, now=now, limit=MOST + 1)
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
        if row.state is MessageState.TOLD and post.settled_at is not None:
            first[row.channel] = min(post.settled_at, first.get(row.channel, post.settled_at))
        failing.setdefault(row.channel, _not_taken(row.channel, post))
    return WhoWasTold(
        told=tuple(ToldThrough(channel, at) for channel, at in sorted(first.items(), key=lambda one: one[1])),
        failing=tuple(one for one in failing.values() if one),
        waiting=waiting,
        unrouted=any(row.state is MessageState.UNROUTED for row in rows),
        channels=seen(Channel).filter(enabled=True, deleted_at=None).exists(),
        rows=rows[:MOST],
        posts=carried,
        more=len(rows) > MOST,
    )


def _not_taken(channel: ChannelNamed, post: PostRow) -> NotTaken | None:
    last = post.last
    if last is None or last.ok is not False or not (post.open or post.state is DeliveryState.GIVEN_UP):
        return None
    return NotTaken(channel, post.next_at, given_up=not post.open)


def first_told(event_pks: Collection[int]) -> dict[int, datetime]:
    """When each of these events (row ids) was told to anybody first, by row id. One query."""
    told = seen(Message).filter(event__in=event_pks, state=MessageState.TOLD.value).order_by()
    return dict(told.values_list("event").annotate(at=Min("delivery__settled_at")).filter(at__isnull=False))
