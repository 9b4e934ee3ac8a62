"""Channels, routes and messages for tests, as rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery, Route
from tests.factories import NOW


def channel(name: str = "hook", **fields: Any) -> Channel:
    """A webhook of the installation, unless something else is said."""
    known = {"kind": "webhook", "created_at": NOW, "changed_at": NOW, "name": name}
    return Channel.objects.create(**{**known, **fields})


def route(name: str = "all", **fields: Any) -> Route:
    """Every moment to every channel of the installation, unless something else is said."""
    return Route.objects.create(**{"name": name, "created_at": NOW, "changed_at": NOW, **fields})


def told(to: Channel | None, at: datetime, **fields: Any) -> Message:
    """Create a waiting message, or one without a route."""
    state = "WAITING" if to else "UNROUTED"
    known = {"moment": "event.first_seen", "subject": "event:1", "severity": "warning", "state": state}
    return Message.objects.create(**{**known, "at": at, "created_at": at, "due_at": at, "channel": to, **fields})


def delivered(to: Channel, at: datetime, **fields: Any) -> Message:
    """A message that its channel took at the first attempt."""
    delivery = MessageDelivery.objects.create(
        channel=to, moment="event.first_seen", state="DELIVERED", created_at=at, due_at=at, attempts=1, settled_at=at
    )
    DeliveryAttempt.objects.create(delivery=delivery, number=1, at=at, ended_at=at, ok=True, status=200, answer="fine")
    return told(to, at, state="TOLD", delivery=delivery, **fields)
