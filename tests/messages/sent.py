"""Rows of notifications as the router and the sender write them, for tests of readers, without playing a story."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fleet.models import ScheduledEvent
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery, Route
from tests.factories import NOW


def a_channel(name: str = "#shop-ops", *, kind: str = "slack", at: datetime = NOW, **fields: Any) -> Channel:
    return Channel.objects.create(name=name, kind=kind, created_at=at, changed_at=at, **fields)


def a_route(name: str = "Everything", *, at: datetime = NOW, **fields: Any) -> Route:
    return Route.objects.create(name=name, created_at=at, changed_at=at, **fields)


def a_message(
    event: ScheduledEvent | None,
    channel: Channel | None,
    *,
    at: datetime,
    moment: str = "event.first_seen",
    **fields: Any,
) -> Message:
    """A message that waits, or whatever `fields` say."""
    stated = {"severity": "warning", "created_at": at, "due_at": at, "subject": f"event:{event.pk}" if event else ""}
    return Message.objects.create(moment=moment, event=event, channel=channel, at=at, **{**stated, **fields})


def a_post(
    channel: Channel,
    messages: Sequence[Message] = (),
    *,
    at: datetime,
    state: str = "DELIVERED",
    moment: str = "",
    tries: Sequence[dict[str, Any]] = ({"ok": True, "status": 200, "answer": "ok"},),
    why: str = "",
) -> MessageDelivery:
    """One post that carries these messages, with its attempts a second apart and half a second long."""
    settled = at + timedelta(seconds=len(tries)) if state in ("DELIVERED", "GIVEN_UP", "DROPPED") else None
    alone = messages[0].moment if len(messages) == 1 else "group" if messages else "test"
    post = MessageDelivery.objects.create(
        channel=channel,
        moment=moment or alone,
        state=state,
        created_at=at,
        due_at=at,
        settled_at=settled,
        attempts=len(tries),
        why=why,
    )
    for number, one in enumerate(tries, start=1):
        began = at + timedelta(seconds=number - 1)
        ended = None if one.get("ok", True) is None else began + timedelta(milliseconds=500)
        DeliveryAttempt.objects.create(delivery=post, number=number, at=began, ended_at=ended, **one)
    told = {"DELIVERED": "TOLD", "GIVEN_UP": "GIVEN_UP", "DROPPED": "DROPPED"}.get(state, "PACKED")
    Message.objects.filter(pk__in=[message.pk for message in messages]).update(delivery=post, state=told, why=why)
    return post


def failed(answer: str = "no", *, status: int | None = 503, error: str = "status") -> dict[str, Any]:
    """An attempt that came to nothing."""
    return {"ok": False, "status": status, "error": error, "answer": answer}


def channel(name: str = "hook", **fields: Any) -> Channel:
    """A webhook of the installation, unless `fields` say something else."""
    return a_channel(name, **{"kind": "webhook", **fields})


def told(to: Channel | None, at: datetime, *, event: ScheduledEvent | None = None, **fields: Any) -> Message:
    """A waiting message, or one without a route."""
    stated = {"state": "WAITING" if to else "UNROUTED", "subject": "event:1"}
    return a_message(event, to, at=at, **{**stated, **fields})


def delivered(to: Channel, at: datetime, **fields: Any) -> Message:
    """A message that its channel accepted at the first attempt."""
    message = told(to, at, **fields)
    a_post(to, [message], at=at)
    message.refresh_from_db()
    return message
