"""Router: creates messages to channels from timeline entries.

It reads only entries older than all running transactions, as the streams do. Messages and cursor are written in one
transaction, so that no entry is skipped or routed twice even if the process is killed. Ingest, decisions and orders
never wait for the router.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.conf import settings
from django.contrib.postgres.aggregates import ArrayAgg
from django.db import connection, transaction
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.event_types import is_advice
from fleet.domain.people import Place
from fleet.domain.pseudonyms import number_of
from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, LastRun, ServiceAccount
from fleet.models.facts.decisions import Experiences, experiences
from fleet.models.facts.events import load_facts, order_timeouts, place_of
from fleet.models.timeline import NEWEST_ERA
from fleet.notifications import delivery, models, notification_types
from fleet.notifications.channels import kinds_where
from fleet.notifications.models import Channel, Cursor, Message, Reference, Route
from fleet.notifications.notification_types import ROUTED_ENTRIES, NotificationType, type_of_entry
from fleet.notifications.routing import MessageFacts, MessageState, is_personal
from fleet.operations.locks import Lock, try_take
from fleet.operations.quarantine import bisect_failures
from fleet.projections.cards import deadline

NAME = "router"
# Entries of one transaction.
MOST = 1000
# If more entries than that are new, the first events of other sets are routed ahead: up to this many of each set, this
# many in total, and from this many of the following entries.
FIRST_OF_EACH, FIRST, LOOKED_AT = 3, 100, 50_000
# Above every row id: all entries of a transaction.
LAST_ID = 2**62
KINDS = [kind.value for kind in ROUTED_ENTRIES]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Routed:
    """Result of one run. `behind`: more entries remain, because they could not be read yet or exceeded the limit."""

    ran: bool = False
    messages: int = 0
    behind: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A notification that is matched with routes, and the timeline entry that caused it. `deadline` is used for
    grouping.
    """

    entry: Entry
    facts: MessageFacts
    due_at: datetime | None = None
    deadline: datetime | None = None


@transaction.atomic
def route(*, now: datetime, via: str) -> Routed:
    """Create messages for new timeline entries, up to a limit. Returns at once if another process is routing. `via`
    names the kind of process.
    """
    if not try_take(Lock.ROUTER):
        return Routed()
    LastRun.objects.update_or_create(name=NAME, defaults={"ran_at": now, "via": via})
    horizon = _horizon()
    cursor = Cursor.objects.filter(name=NAME).first()
    if cursor is None:
        # No notifications about entries before the very first run.
        _move(*horizon, LAST_ID, now=now)
        return Routed(ran=True)
    entries = _entries(cursor, horizon)
    full = len(entries) == MOST
    # They are read again in their order; a channel gets no entry twice.
    ahead = _first_of_others(entries, horizon) if full else []
    failed: list[Message] = []

    def fail(entry: Entry, error: Exception) -> None:
        # An alarm without a channel; the other entries are routed.
        log.error("router.entry", entry=entry.pk, error=f"{type(error).__name__}: {error}")
        notification_type = _type_of(entry) or NotificationType.OVERDUE
        facts = MessageFacts(moment=notification_type, at=entry.at, severity=notification_type.severity)
        failed.append(_message(_Candidate(entry, facts), now=now, state=MessageState.UNROUTED, why="own-failure"))

    rows = bisect_failures([*entries, *ahead], partial(_messages, now=now), fail) + failed
    Message.objects.bulk_create(rows, ignore_conflicts=True)
    place = (entries[-1].era, entries[-1].xid, entries[-1].pk) if full else (*horizon, LAST_ID)
    if entries or place[:2] > (cursor.era, cursor.xid):
        _move(*place, now=now)
    if entries:
        delivery.mirror_soon()
    # A later run must route committed entries above the horizon.
    above = Entry.objects.filter(era=horizon[0], xid__gt=horizon[1], kind__in=KINDS)
    return Routed(ran=True, messages=len(rows), behind=full or above.exists())


def _horizon() -> tuple[int, int]:
    """Return the newest era, and the transaction id below which no transaction is still running."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NEWEST_ERA}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1")
        era, xid = cursor.fetchone() or (0, 0)
    return int(era), int(xid)


def _move(era: int, xid: int, entry_id: int, *, now: datetime) -> None:
    place = {"era": era, "xid": xid, "entry_id": entry_id, "moved_at": now}
    Cursor.objects.update_or_create(name=NAME, defaults=place)


def _entries(cursor: Cursor, horizon: tuple[int, int]) -> list[Entry]:
    behind = TupleGreaterThan(Tuple("era", "xid", "id"), (cursor.era, cursor.xid, cursor.entry_id))
    below = TupleLessThan(Tuple("era", "xid"), (horizon[0], horizon[1] + 1))
    rows = Entry.objects.filter(behind, below, kind__in=KINDS).select_related("availability_set", "cache")
    return list(rows.order_by("era", "xid", "id")[:MOST])


def _first_of_others(entries: Sequence[Entry], horizon: tuple[int, int]) -> list[Entry]:
    """Return the first new events of sets that do not occur in `entries`, from later entries. A set with thousands of
    events therefore does not delay the first notification of another set.
    """
    last = entries[-1]
    table, messages = Entry._meta.db_table, Message._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT id FROM (
                SELECT id, row_number() OVER (PARTITION BY availability_set_id ORDER BY era, xid, id) AS place
                FROM (SELECT id, era, xid, kind, availability_set_id FROM {table}
                      WHERE (era, xid, id) > (%s, %s, %s) AND (era, xid) < (%s, %s)
                      ORDER BY era, xid, id LIMIT {LOOKED_AT}) AS behind
                WHERE kind = %s AND availability_set_id <> ALL (%s)
                      AND NOT EXISTS (SELECT FROM {messages} AS message WHERE message.entry_id = behind.id)
            ) AS counted WHERE place <= {FIRST_OF_EACH} ORDER BY place, id LIMIT {FIRST}
            """,
            [
                *(last.era, last.xid, last.pk, horizon[0], horizon[1] + 1),
                EntryKind.EVENT_SEEN.value,
                sorted({entry.availability_set_id for entry in entries if entry.availability_set_id is not None}),
            ],
        )
        ids = [pk for (pk,) in cursor.fetchall()]
    rows = Entry.objects.filter(pk__in=ids).select_related("availability_set", "cache")
    return list(rows.order_by("era", "xid", "id")) if ids else []


def _messages(entries: Sequence[Entry], *, now: datetime) -> list[Message]:
    personal = [entry for entry in entries if _is_of_account(entry)]
    rows = list(_to_users(personal, now=now)) if personal else []
    entries = [entry for entry in entries if not _is_of_account(entry)]
    routes = models.routes_in_force() if entries else []
    if not routes:
        return rows
    events = load_facts({entry.event_id for entry in entries if entry.event_id is not None}, now=now)
    past = experiences([event.set_id for event in events.values()])
    # The times of waiting steps of escalation are computed again where NotBefore has changed.
    moved = {entry.event_id for entry in entries if _type_of(entry) is NotificationType.CHANGED}
    only_if = NotificationType.UNDECIDED.declared.only_if
    steps = Message.objects.filter(event__in=moved, state=MessageState.WAITING.value, only_if=only_if)
    steps.update(state=MessageState.DROPPED.value, why="moved")
    # Channels (row ids) that have an incident or card of an event, by subject.
    of_events = Reference.objects.filter(
        subject__in=[f"event:{pk}" for pk in events],
        channel__kind__in=kinds_where(follows=True),
        channel__enabled=True,
        channel__deleted_at=None,
    )
    followers = dict(of_events.values_list("subject").annotate(ids=ArrayAgg("channel")))
    for entry in entries:
        for candidate in _candidates(entry, events.get(entry.event_id or 0), past, now=now):
            rows += _to_channels(candidate, routes, followers, now=now)
    return rows


def _type_of(entry: Entry) -> NotificationType | None:
    return type_of_entry(EntryKind(entry.kind), entry.data)


def _is_of_account(entry: Entry) -> bool:
    notification_type = _type_of(entry)
    return notification_type is not None and notification_type.declared.personal


def _to_users(entries: Sequence[Entry], *, now: datetime) -> Iterator[Message]:
    """Yield messages about users' accounts. Each is sent to all personal channels of the user concerned, without a
    route. Messages about a service account are sent to the owner. Two queries.
    """
    users = {
        entry.pk: number_of(str(entry.data["person"]))
        for entry in entries
        if is_personal(EntryKind(entry.kind), entry.data)
    }
    services = ServiceAccount.objects.filter(user__in=set(users.values()), owner__isnull=False)
    owners: dict[int | None, int | None] = dict(services.values_list("user", "owner"))
    numbers = {owners.get(number, number) for number in users.values()}
    channels = models.usable_channels().filter(owner__in=numbers, owner__is_active=True)
    by_owner = dict(channels.values_list("owner").annotate(ids=ArrayAgg("pk", order_by="pk")))
    for entry in entries:
        number = users.get(entry.pk)
        facts = MessageFacts(NotificationType.ACCOUNT, entry.at, NotificationType.ACCOUNT.severity)
        for channel_id in by_owner.get(owners.get(number, number), ()):
            yield _message(_Candidate(entry, facts), now=now, channel_id=channel_id)


def _candidates(entry: Entry, event: EventFacts | None, past: Experiences, *, now: datetime) -> Iterator[_Candidate]:
    """Yield the notifications that an entry causes. None if the entry is about an unknown event."""
    notification_type = _type_of(entry)
    if entry.event_id is None:
        # A machine may state any EventId: its hooks notify only if they are about an event of its set.
        if notification_type is not None and not notification_type.declared.of_machine:
            yield _Candidate(entry, facts_of_no_event(entry, notification_type))
    elif event is not None:
        facts = MessageFacts(
            moment=notification_type or NotificationType.OVERDUE,
            at=entry.at,
            severity=notification_types.severity(event).value,
            event_type=event.event_type,
            source=event.source,
            place=event.place,
            drill=event.drill,
            decide_by=_decide_by(event, past, now=now),
            by=entry.actor,
        )
        if notification_type is not None:
            yield _Candidate(entry, facts, deadline=facts.decide_by)
        if entry.kind in NotificationType.OVERDUE.declared.clock:
            overdue = replace(facts, moment=NotificationType.OVERDUE)
            yield _Candidate(entry, overdue, due_at=entry.at + order_timeouts().by_hand, deadline=event.not_before)


def facts_of_no_event(entry: Entry, notification_type: NotificationType) -> MessageFacts:
    """Return the facts about a notification whose subject is no event."""
    place, how_bad = None, notification_type.severity
    if entry.cache is not None:
        place, how_bad = Place("cache", "", entry.cache.service), notification_types.cache_severity(entry.cache.tier)
    elif entry.availability_set is not None:
        place = place_of(entry.availability_set)
    return MessageFacts(notification_type, entry.at, how_bad.value, place=place, by=entry.actor)


def _decide_by(event: EventFacts, past: Experiences, *, now: datetime) -> datetime | None:
    """Return the time by which the event must be decided, or None if it needs no decision any more."""
    is_ahead = event.status is EventStatus.SCHEDULED and event.not_before is not None and event.not_before > now
    if not is_ahead or is_advice(event.event_type):
        return None
    return deadline(event, past.of(event.set_id, event.event_type), now=now)


def _to_channels(
    candidate: _Candidate,
    routes: Sequence[tuple[Route, Sequence[Channel]]],
    followers: Mapping[str, Sequence[int]],
    *,
    now: datetime,
) -> list[Message]:
    """Return the messages for a notification: one for each channel of the matching routes and for each channel that
    follows the event. If there is none, return an alarm message without a channel if the type requires it; drills raise
    no alarm.
    """
    facts, subject = candidate.facts, _subject(candidate.entry)
    rows: list[Message] = []
    reached: set[int] = set()
    for route, channels in routes:
        if not route.matches(facts, now=now) or not models.may_hear(route.owner, facts):
            continue
        is_step = route.step is not None
        for channel in channels:
            # A channel is not notified about itself.
            if subject == f"channel:{channel.pk}" or (not is_step and channel.pk in reached):
                continue
            if not is_step:
                reached.add(channel.pk)
            rows.append(_message(candidate, now=now, route=route, channel_id=channel.pk))
    if facts.moment.declared.followed:
        rows += [_message(candidate, now=now, channel_id=pk) for pk in sorted({*followers.get(subject, ())} - reached)]
    if not rows and facts.moment.declared.always_notify and not facts.drill:
        rows = [_message(candidate, now=now, state=MessageState.UNROUTED)]
    return rows


def _subject(entry: Entry) -> str:
    if _is_of_account(entry):
        # Each has its own subject, so that none supersedes another.
        return f"account:{entry.pk}"
    notification_type = _type_of(entry)
    if notification_type is not None and notification_type.declared.of_machine:
        return f"hooks:{entry.machine_id}"
    ids = (
        ("event", entry.event_id),
        ("maintenance", entry.maintenance_id),
        ("cache", entry.cache_id),
        ("machine", entry.machine_id),
        ("set", entry.availability_set_id),
        ("channel", entry.data.get("channel_id")),
    )
    # The start and end of a failure have the same subject.
    of_fleet = f"fleet:{entry.data.get('code') or entry.kind}"
    return next((f"{kind}:{row_id}" for kind, row_id in ids if row_id is not None), of_fleet)


def _message(
    candidate: _Candidate,
    *,
    now: datetime,
    route: Route | None = None,
    channel_id: int | None = None,
    state: MessageState = MessageState.WAITING,
    why: str = "",
) -> Message:
    entry, facts = candidate.entry, candidate.facts
    step = route.step if route else None
    notification_type = step or facts.moment
    due = route.due_at(facts, now=now) if route and step else candidate.due_at
    # Types that are due by the clock need no further wait for grouping.
    soonest = now + timedelta(seconds=settings.NOTIFICATION_GROUP_WAIT_SECONDS)
    return Message(
        moment=notification_type.value,
        subject=_subject(entry),
        entry_id=entry.pk,
        event_id=entry.event_id,
        at=entry.at,
        created_at=now,
        due_at=soonest if due is None else max(due, now),
        only_if=notification_type.declared.only_if,
        severity=facts.severity,
        service=facts.place.service if facts.place else "",
        drill=facts.drill,
        deadline=candidate.deadline,
        channel_id=channel_id,
        route=route,
        route_version=route.version if route else None,
        data={"route": route.name, "wording": route.wording(route.channel).stored} if route else {},
        state=state.value,
        why=why,
    )
