"""Walkers for messages out: the router, and a channel that writes down what it gets."""

import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fleet.notifications import delivery, router
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome
from fleet.notifications.models import Message, Route
from tests.factories import Fleet
from tests.messages.sent import a_route


def only(name: str = "all", **fields: Any) -> Route:
    """A route that stands alone: the ready-made one is switched off."""
    Route.objects.filter(enabled=True).update(enabled=False)
    return a_route(name, **fields)


def routed(fleet: Fleet) -> router.Routed:
    """Route all new entries. A session that writes on this server, in whatever database, delays them a moment."""
    messages, until = 0, time.monotonic() + 20
    while True:
        found = router.route(now=fleet.now, via="test")
        messages += found.messages
        if not found.behind or time.monotonic() > until:
            return replace(found, messages=messages)
        time.sleep(0.02)


def told(**wanted: Any) -> list[tuple[str, str]]:
    """(moment, channel) of all messages, in the order in which they were made."""
    rows = Message.objects.filter(**wanted).order_by("id").select_related("channel")
    return [(row.moment, row.channel.name if row.channel else "") for row in rows]


@dataclass
class Receiver:
    """A kind of channel that writes down what it gets. `answers` are given in turn, the last one again and again."""

    answers: list[Outcome | BaseException] = field(default_factory=lambda: [Outcome(ok=True, status=200)])
    posts: list[tuple[str, Delivery]] = field(default_factory=list)

    def send(self, post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
        self.posts.append((channel.name, post))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def moments(self) -> list[str]:
        return [post.moment for _, post in self.posts]


def due_channels(*, now: datetime) -> list[int]:
    """Channels without a sender that are due."""
    return [channel_id for channel_id, due_at in delivery.schedule() if due_at <= now]


def send_all(fleet: Fleet) -> None:
    """Send all due notifications as the worker does, one channel after the other."""
    routed(fleet)
    for channel_id in due_channels(now=fleet.now):
        delivery.work_off(channel_id, clock=lambda: fleet.now)
