"""Messages without a router: rows for the newest entries, as it would make them."""

from datetime import datetime
from typing import Any

from fleet.domain.timeline import EntryKind
from fleet.models import Entry
from fleet.models.facts.events import load_facts
from fleet.notifications.models import Channel, Message
from fleet.notifications.news import MessageNews, news_of
from fleet.notifications.notification_types import NotificationType, cache_severity, severity, type_of_entry
from tests.factories import NOW


def a_channel(name: str = "ops") -> Channel:
    known: Channel = Channel.objects.get_or_create(
        name=name, defaults={"kind": "webhook", "created_at": NOW, "changed_at": NOW}
    )[0]
    return known


def a_message(kind: EntryKind, *, now: datetime, moment: NotificationType | None = None, **fields: Any) -> Message:
    """A message of the newest entry of this kind."""
    line = Entry.objects.filter(kind=kind.value).select_related("event__availability_set", "cache").latest("pk")
    what = moment or type_of_entry(kind, line.data)
    assert what is not None
    subject, service, bad = f"fleet:{kind}", "", what.severity
    if line.event is not None:
        subject, service = f"event:{line.event_id}", line.event.availability_set.service
        bad = severity(load_facts([line.event_id], now=now)[line.event.pk])
    elif line.cache is not None:
        subject, service = f"maintenance:{line.maintenance_id}", line.cache.service
        bad = cache_severity(line.cache.tier)
    made: Message = Message.objects.create(
        moment=what.value,
        subject=subject,
        entry_id=line.pk,
        event=line.event,
        at=line.at,
        created_at=now,
        due_at=now,
        severity=bad.value,
        service=service,
        drill=line.event.drill if line.event else False,
        channel=fields.pop("channel", None) or a_channel(),
        **fields,
    )
    return made


def news(message: Message, *, now: datetime) -> MessageNews:
    return news_of([message.pk], now=now)[message.pk]
