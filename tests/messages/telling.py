"""Messages of the newest entries, as the router makes them for a channel."""

from datetime import datetime

from fleet.domain.timeline import EntryKind
from fleet.models import Entry
from fleet.models.facts.decisions import experiences
from fleet.models.facts.events import load_facts
from fleet.notifications import router
from fleet.notifications.models import Channel, Message
from fleet.notifications.news import MessageNews, news_of
from fleet.notifications.notification_types import NotificationType, type_of_entry
from tests.factories import NOW


def a_channel(name: str = "ops") -> Channel:
    known: Channel = Channel.objects.get_or_create(
        name=name, defaults={"kind": "webhook", "created_at": NOW, "changed_at": NOW}
    )[0]
    return known


def a_message(
    kind: EntryKind, *, now: datetime, moment: NotificationType | None = None, channel: Channel | None = None
) -> Message:
    """A message of the newest entry of this kind, due now."""
    line = Entry.objects.filter(kind=kind.value).select_related("availability_set", "cache").latest("pk")
    events = load_facts({line.event_id} - {None}, now=now)
    past = experiences([event.set_id for event in events.values()])
    what = moment or type_of_entry(kind, line.data)
    candidates = router._candidates(line, events.get(line.event_id or 0), past, now=now)
    candidate = next(each for each in candidates if each.facts.moment is what)
    made = router._message(candidate, now=now, channel_id=(channel or a_channel()).pk)
    made.due_at = now
    made.save()
    return made


def news(message: Message, *, now: datetime) -> MessageNews:
    return news_of([message.pk], now=now)[message.pk]
