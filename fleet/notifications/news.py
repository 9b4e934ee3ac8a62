"""Content of notifications, loaded immediately before they are sent, and the open events and maintenances for channels
that mirror them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Prefetch

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.event_types import Severity, event_type_of
from fleet.domain.shapes import grouped
from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import Entry, Machine, Maintenance, OpenTrouble, ScheduledEvent
from fleet.notifications.incidents import Muted
from fleet.notifications.models import Channel, Message
from fleet.notifications.notification_types import NotificationType, cache_severity, type_severity, why_stale
from fleet.notifications.routing import MessageState
from fleet.projections import approvals, orders
from fleet.projections.approvals import ApprovalRow
from fleet.projections.caches.maintenances import MaintenanceRow, maintenance_row
from fleet.projections.cards import DecisionCard, decision_cards
from fleet.projections.changes import with_changes
from fleet.projections.events.rows import OPEN, EventRow, attention_of, blast_radii, event_row
from fleet.projections.orders import ByHandRow
from fleet.projections.refs import plain_name
from fleet.projections.timeline.entries import TimelineRow, rows_of, with_subjects
from fleet.projections.visibility import load_facts, visible
from fleet.wording.events import named
from fleet.wording.sentences import some
from fleet.wording.times import one_line


@dataclass(frozen=True, slots=True)
class MessageNews:
    """Content of one message.

    `event` and `card` are None if the subject is no event; `entry` is None without a timeline entry. `approval` is the
    one that the message reports, else the event's latest. `by_hand` has instructions for a manual approval if no agent
    can dispatch it. `deadline` is the time by which the subject must be decided. `newer` are the types of newer
    messages to the same channel about the event. `lasts`: the condition that the message reports still applies.
    """

    moment: NotificationType
    subject: str
    at: datetime
    severity: str
    drill: bool
    service: str = ""
    event: EventRow | None = None
    card: DecisionCard | None = None
    entry: TimelineRow | None = None
    approval: ApprovalRow | None = None
    by_hand: ByHandRow | None = None
    maintenance: MaintenanceRow | None = None
    # Type and machines of the first announcement, regardless of later changes.
    first: tuple[str, tuple[str, ...]] | None = None
    deadline: datetime | None = None
    server_time: datetime | None = None
    newer: frozenset[NotificationType] = frozenset()
    lasts: bool = False

    @property
    def stale(self) -> str:
        """The code of the reason why the message need not be sent any more, or empty."""
        return why_stale(self)

    @property
    def approval_state(self) -> ApprovalState | None:
        """The state of the approval that the message reports, or None if it reports none."""
        return self.approval.state if self.approval and self.entry and self.entry.approval_id else None

    @property
    def claimant(self) -> str:
        """The claimant that the message reports, or an empty string."""
        return ((self.entry and self.entry.after) or {}).get("claim") or ""


def news_of(message_ids: Collection[int], *, now: datetime) -> dict[int, MessageNews]:
    """Return the content of these messages (row ids) by row id. The number of queries is fixed."""
    # With the time of their last change, as the API shows it.
    events = Prefetch("event", queryset=with_changes(visible(ScheduledEvent).select_related("availability_set")))
    messages = list(visible(Message).filter(pk__in=list(message_ids)).prefetch_related(events).order_by("pk"))
    lines = _lines(messages)
    of_events = _Events([message.event for message in messages if message.event is not None], now=now)
    maintenances = _maintenances(lines)
    newer, open_now = _newer(messages), _failing(messages) | _troubles(lines)
    content = {}
    for message in messages:
        line, moment = lines.get(message.entry_id or 0), NotificationType(message.moment)
        about: dict[str, Any] = {"deadline": message.deadline}
        if message.event_id is not None:
            about = of_events.about(message.event_id, line, moment)
        news = MessageNews(
            moment=moment,
            subject=message.subject,
            at=message.at,
            severity=message.severity,
            drill=message.drill,
            service=message.service,
            entry=line,
            maintenance=maintenances.get(line.maintenance_id or 0) if line else None,
            server_time=now,
            newer=newer[message.pk],
            **about,
        )
        content[message.pk] = replace(news, lasts=_lasts(news, open_now))
    return content


class _Events:
    """Loaded data about the events of some messages. Eighteen queries for any number."""

    def __init__(self, events: Collection[ScheduledEvent], *, now: datetime) -> None:
        by_id = {event.pk: event for event in events}
        ids, chosen = list(by_id), list(by_id.values())
        self.now = now
        self.approvals = approvals.by_event(chosen, now=now)
        seen_to = attention_of(ids)
        self.rows = {
            pk: event_row(event, self.approvals.get(pk, ()), now=now, **seen_to[pk]) for pk, event in by_id.items()
        }
        self.facts: Mapping[int, EventFacts] = load_facts(ids, now=now)
        blasts = blast_radii(chosen, now=now)
        self.cards = decision_cards(list(self.rows.values()), blasts, self.facts, now=now)
        seen = visible(Entry).filter(event__in=ids, kind=EntryKind.EVENT_SEEN.value)
        self.first = {
            event_id: (str(data.get("event_type", "")), tuple(data.get("resources", ())))
            for event_id, data in seen.values_list("event_id", "data")
        }
        sets = {event.availability_set_id for event in chosen}
        machines = visible(Machine).filter(availability_set__in=sets).only("availability_set", "os_type")
        self.machines = grouped((machine.availability_set_id, machine) for machine in machines)

    def about(self, event_pk: int, entry: TimelineRow | None, moment: NotificationType) -> dict[str, Any]:
        """Return the fields of `MessageNews` about this event (row id)."""
        row, facts, card = self.rows[event_pk], self.facts[event_pk], self.cards[event_pk]
        wanted = entry.approval_id if entry else None
        decided = self.approvals.get(event_pk, ())
        approval = next((one for one in decided if one.id == wanted), None) if wanted else row.approval
        machines = self.machines[facts.set_id]
        return {
            "event": row,
            "card": card,
            "approval": approval,
            "first": self.first.get(event_pk),
            "by_hand": orders.by_hand(facts, approval, machines, now=self.now) if moment.declared.by_hand else None,
            "deadline": card.decide_by if row.needs_decision else row.not_before if row.open else None,
        }


def _lines(messages: Collection[Message]) -> dict[int, TimelineRow]:
    ids = [message.entry_id for message in messages if message.entry_id is not None]
    return {row.id: row for row in rows_of(with_subjects(visible(Entry).filter(pk__in=ids)))}


def _maintenances(lines: Mapping[int, TimelineRow]) -> dict[int, MaintenanceRow]:
    ids = [line.maintenance_id for line in lines.values() if line.maintenance_id is not None]
    rows = visible(Maintenance).filter(pk__in=ids).select_related("cache")
    return {row.pk: maintenance_row(row) for row in rows}


def _newer(messages: Collection[Message]) -> dict[int, frozenset[NotificationType]]:
    """Return the types of newer messages to the same channel about the same event, by row id of each message."""
    # Those that were sent or will be.
    rows = visible(Message).filter(
        event__in={message.event_id for message in messages if message.event_id is not None},
        channel__in={message.channel_id for message in messages if message.channel_id is not None},
        state__in=[state.value for state in (MessageState.WAITING, MessageState.BATCHED, MessageState.SENT)],
    )
    columns = rows.values_list("event_id", "channel_id", "pk", "moment")
    several: Any = grouped(((event, channel), (pk, NotificationType(moment))) for event, channel, pk, moment in columns)
    return {
        one.pk: frozenset(moment for pk, moment in several[one.event_id, one.channel_id] if pk > one.pk)
        for one in messages
    }


def _failing(messages: Collection[Message]) -> frozenset[str]:
    """Return the subjects (`channel:…`) of those channels that are failing now."""
    ids = [message.subject.partition(":")[2] for message in messages if message.subject.startswith("channel:")]
    rows = visible(Channel).filter(pk__in=ids, failing_since__isnull=False, enabled=True, deleted_at=None)
    return frozenset(f"channel:{pk}" for pk in rows.values_list("pk", flat=True))


def _troubles(lines: Mapping[int, TimelineRow]) -> frozenset[str]:
    """Return the keys of all open troubles, and the keys under which several troubles were reported together."""
    if not any("trouble" in line.data for line in lines.values()):
        return frozenset()
    rows = list(visible(OpenTrouble).filter(recorded_at__isnull=False).values_list("key", "code", "recorded_at"))
    return frozenset(key for key, _, _ in rows) | {
        f"{code}: {iso(recorded_at)}" for _, code, recorded_at in rows if recorded_at is not None
    }


def _lasts(news: MessageNews, open_now: frozenset[str]) -> bool:
    """Return whether the condition that a message reports still applies. If it reports several troubles, one open
    trouble is enough. `open_now` has the keys of what is open.
    """
    data = news.entry.data if news.entry else {}
    if "trouble" in data:
        together = f"{data['code']}: {data['told_at']}"
        return (together if "places" in data["values"] else data["trouble"]) in open_now
    return news.subject in open_now or (news.maintenance is not None and news.maintenance.active)


# Open events and cache maintenances with the texts of their alerts, for channels that mirror them. Times are in UTC.

# Limit of rows; the nearest NotBefore comes first.
MOST = 10_000
LONGEST, LONGEST_LABEL = 4000, 200


@dataclass(frozen=True, slots=True)
class OpenThing:
    """An open event or cache maintenance, with its alert. `started_at` is None before the start. `silenced_until` is
    set if a user silenced the event or its set. `path` is its page; opening it changes nothing.

    `set_id` and `resources` are the set (row id) and the machines of an event, `cache_host` the cache of a maintenance.
    """

    subject: str
    service: str
    labels: dict[str, str]
    summary: str
    description: str
    path: str
    first_at: datetime
    started_at: datetime | None
    silenced_until: datetime | None = None
    drill: bool = False
    set_id: int | None = None
    resources: tuple[str, ...] = ()
    cache_host: str = ""


def open_things() -> tuple[OpenThing, ...]:
    """Return all open events and cache maintenances, those with the nearest NotBefore first. Two queries."""
    events = visible(ScheduledEvent).filter(status__in=OPEN).select_related("availability_set")
    active = visible(Maintenance).filter(status__in=[status.value for status in ACTIVE]).select_related("cache")
    newest = active.order_by("-first_at", "-id")[:MOST]
    return (*map(_event, events.order_by("not_before", "id")[:MOST]), *map(_maintenance, newest))


def _event(row: ScheduledEvent) -> OpenThing:
    home, resources = row.availability_set, tuple(row.resources)
    set_name = f"{home.name} ({home.name_suffix})" if home.name_suffix else home.name
    started_at = row.started_at if row.status == EventStatus.STARTED.value else None
    when = f"Azure starts it any time after {iso(row.not_before)}." if row.not_before else "It may start at any moment."
    started = f"Under way since {iso(started_at)}." if started_at else ""
    machines = f"Machines: {some(resources, 20)}." if resources else "Azure names no machine."
    return OpenThing(
        subject=f"event:{row.pk}",
        service=home.service,
        labels=labels(
            "AzureScheduledEvent",
            # By the type alone, so that it does not change while the event is open.
            type_severity(row.event_type, row.source),
            service=home.service,
            event_id=row.event_id,
            event_type=row.event_type,
            availability_set=set_name,
            resource_group=home.resource_group,
            drill="yes" if row.drill else "",
        ),
        summary=one_line(f"{'DRILL: ' if row.drill else ''}{named(row.event_type, resources)} in {set_name}", LONGEST),
        description=one_line(f"{started or when} {event_type_of(row.event_type).effect} {machines}", LONGEST),
        path=f"/events/{row.event_id}/",
        first_at=row.first_seen_at,
        started_at=started_at,
        silenced_until=max(filter(None, (row.silenced_until, home.silenced_until)), default=None),
        drill=row.drill,
        set_id=home.pk,
        resources=resources,
    )


def _maintenance(row: Maintenance) -> OpenThing:
    host, shard = row.cache.host, "" if row.shard is None else str(row.shard)
    # In earlier states, the cache works normally.
    under_way = row.status in (MaintenanceStatus.UNDER_WAY.value, MaintenanceStatus.FAILED_OVER.value)
    started_at = row.began_at or row.last_at if under_way else None
    when = f"Expected at {iso(row.expected_at)}." if row.expected_at else "Azure has stated no time."
    return OpenThing(
        subject=f"maintenance:{row.pk}",
        service=row.cache.service,
        labels=labels(
            "AzureCacheMaintenance",
            cache_severity(row.cache.tier),
            service=row.cache.service,
            event_id=f"maintenance-{row.pk}",
            cache_host=host,
            shard=shard,
        ),
        summary=one_line(f"Maintenance of the cache {host}{f', shard {shard}' if shard else ''}", LONGEST),
        description=f"Under way since {iso(started_at)}." if started_at else when,
        path=f"/maintenances/{row.pk}/",
        first_at=row.first_at,
        started_at=started_at,
        cache_host=host,
    )


def labels(alertname: str, severity: Severity, **others: str) -> dict[str, str]:
    """Return the labels of an alert: few, short, and unchanged while the event is open. The label `instance` is
    avoided, because a silence of the machine would then also hide this alert.
    """
    netloc = urlsplit(settings.BASE_URL).netloc
    stated = {"alertname": alertname, "drydock": netloc, "severity": severity.value, **others}
    return {name: line for name, value in stated.items() if (line := one_line(value, LONGEST_LABEL))}


def muted_machines(things: Iterable[OpenThing]) -> dict[str, tuple[Muted, ...]]:
    """Return the machines that these events name, by subject. Only the name is known of a machine without an agent. One
    query.
    """
    of_events = [thing for thing in things if thing.set_id is not None]
    rows = visible(Machine).filter(availability_set__in={thing.set_id for thing in of_events})
    known: dict[tuple[int | None, str], Muted] = {
        (row.availability_set_id, plain_name(row.resource_name)): muted(row) for row in rows
    }
    return {
        thing.subject: tuple(known.get((thing.set_id, plain_name(name)), {"name": (name,)}) for name in thing.resources)
        for thing in of_events
    }


def muted(machine: Machine) -> Muted:
    """Return the values that may identify a machine in labels of alerts, from its instance metadata."""
    compute: dict[str, Any] = machine.compute
    profile, addresses = compute.get("osProfile"), compute.get("privateIpAddresses")
    host = str(profile.get("computerName") or "") if isinstance(profile, dict) else ""
    address = tuple(map(str, addresses)) if isinstance(addresses, list) else ()
    return {"name": (machine.resource_name,), "host": (host,), "address": address}
