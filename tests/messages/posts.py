"""Posts as the queue makes them of what is in the database, and what a channel keeps between them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any
from uuid import UUID, uuid5

from fleet.models import ScheduledEvent
from fleet.notifications.channels import KINDS
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome
from fleet.notifications.delivery import keep_references
from fleet.notifications.models import Channel, Reference
from fleet.notifications.news import MessageNews
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import GROUP, TEST
from fleet.notifications.text import MessageWords
from fleet.operations.approvals import claims
from fleet.projections.events.rows import event_rows
from fleet.wording.times import Form, Reader
from tests.factories import EVENT, Fleet, acting, listing, operator

BASE = "https://drydock.example"
# What happened: a moment, and the EventId that it is about (alone: `EVENT`).
Told = NotificationType | tuple[NotificationType, str]


def wave(fleet: Fleet, count: int) -> list[str]:
    """Events at once, each of one machine of a set of its own, the first with the nearest deadline; their EventIds."""
    event_ids = [f"{number:08X}-0000-4000-8000-000000000000" for number in range(count)]
    for number, event_id in enumerate(event_ids):
        name, due = f"w{number}", fleet.now + timedelta(minutes=15, seconds=number)
        fleet.enrol(name, availability_set=f"standalone:{name}")
        fleet.say(name, listing(event_id, event_type="Reboot", resources=(name,), not_before=due))
    return event_ids


def claim(fleet: Fleet, event_id: str = EVENT) -> None:
    claims.claim(event_id=event_id, actor=acting(operator()), now=fleet.now)


def channel_of(kind: str, now: datetime, **values: Any) -> Channel:
    """A channel of this kind with these settings and secrets."""
    secrets = KINDS[kind].secrets
    open_ones = {name: value for name, value in values.items() if name not in secrets}
    row = Channel.objects.create(kind=kind, name=f"{kind} #1", settings=open_ones, created_at=now, changed_at=now)
    row.seal({name: value for name, value in values.items() if name in secrets})
    row.save(update_fields=["secrets"])
    return row


@dataclass
class ChannelDriver:
    """Sends deliveries to one channel as the queue does, with the references that the channel stores."""

    module: ModuleType
    fleet: Fleet
    row: Channel
    values: dict[str, Any]
    count: int = 0
    severity: dict[str, str] = field(default_factory=dict)

    def post(self, *told: Told, title: str = "", lines: Iterable[str] = (), post_id: str = "") -> Delivery:
        self.count += 1
        events = {event.event_id: event for event in ScheduledEvent.objects.select_related("availability_set")}
        rows = {row.event_id: row for row in event_rows(list(events.values()), now=self.fleet.now)}
        items: list[Item] = []
        for each in told:
            moment, event_id = each if isinstance(each, tuple) else (each, EVENT)
            row = rows[event_id]
            news = MessageNews(
                moment=moment,
                subject=f"event:{row.id}",
                at=self.fleet.now,
                severity=self.severity.get(event_id, "warning"),
                drill=row.drill,
                service=events[event_id].availability_set.service,
                event=row,
            )
            named = title or f"{row.event_type} of {', '.join(row.resources)}"
            words = MessageWords(named, named, (named, *lines), named[:160], f"/events/{event_id}/")
            items.append(Item(news, Reader(UTC, Form.MESSAGE, self.fleet.now)))
            # It says this, whatever it would say.
            vars(items[-1]).update(words=words)
        together = MessageWords(f"{len(items)} messages", "", ("a line", *lines), "short", "/")
        subjects = {item.news.subject for item in items}
        kept = Reference.objects.filter(channel=self.row, subject__in=[*subjects, GROUP])
        words = items[0].words if len(items) == 1 else together
        return Delivery(
            id=post_id or str(uuid5(UUID(int=self.row.pk), str(self.count))),
            moment=TEST if not items else items[0].news.moment if len(items) == 1 else GROUP,
            at=self.fleet.now,
            items=tuple(items),
            words=words,
            url=BASE + words.path,
            references=dict(kept.values_list("subject", "value")),
        )

    def send(self, post: Delivery, *, keep: bool = True) -> Outcome:
        """Sent, and what is to be kept is; without `keep` the sender was killed before that."""
        in_use = ChannelInUse(self.row.pk, self.row.kind, self.row.name, self.values)
        outcome: Outcome = self.module.send(post, in_use, now=self.fleet.now)
        if keep:
            keep_references(self.row.pk, outcome.references, now=self.fleet.now)
        return outcome

    def first_seen(self, *event_ids: str) -> Outcome:
        """All of these events were announced."""
        return self.tell(*[(NotificationType.FIRST_SEEN, event_id) for event_id in event_ids])

    def tell(self, *told: Told, **known: Any) -> Outcome:
        return self.send(self.post(*told, **known))


def driver_of(module: ModuleType, fleet: Fleet, **values: Any) -> ChannelDriver:
    """A driver of a new channel of this kind with these settings and secrets."""
    kind = module.__name__.rpartition(".")[2]
    return ChannelDriver(module, fleet, channel_of(kind, fleet.now, **values), values)
