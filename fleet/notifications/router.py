"""Router: timeline entries become messages to channels; notifications of blind spots.

It reads below the horizon of running transactions, as the streams do, and writes messages and cursor in one
transaction: nothing is left out and nothing is told twice, wherever it dies. Nobody who reports, decides or relays
waits for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan

from fleet.domain.approvals.conditions import undo_until
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.event_types import is_advice
from fleet.domain.people import Place
from fleet.domain.recommendation import decide_by
from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, LastRun
from fleet.models.facts.decisions import Experiences, experiences
from fleet.models.facts.events import load_facts, order_timeouts
from fleet.models.reconcile import seconds_since_run
from fleet.models.timeline import NEWEST_ERA
from fleet.notifications import queue, route_services
from fleet.notifications.kinds import FOLLOWING
from fleet.notifications.models import Cursor, Message, Reference, RouteInForce, may_hear, routes_in_force
from fleet.notifications.routing import (
    ALWAYS_NOTIFY,
    AWAITING_ANSWER,
    FOLLOWED,
    OF_ENTRY,
    MessageFacts,
    MessageState,
    NotificationType,
    SendCondition,
    matches,
    told_at,
)
from fleet.notifications.severity import cache_severity, severity, type_severity
from fleet.operations.locks import Lock, try_take
from fleet.operations.quarantine import bisect_failures

NAME = "router"
# Of one transaction.
MOST = 1000
# While more than that is new: the first events of sets that are not in it are told at once, so many of each set, and so
# many in all, out of so many entries behind it.
FIRST_OF_EACH, FIRST, LOOKED_AT = 3, 100, 50_000
# Everything of a transaction.
LAST_ID = 2**62
KINDS = [kind.value for kind in {*OF_ENTRY, *AWAITING_ANSWER}]
# A step of escalation is told as a moment of its own.
STEPS = {SendCondition.UNCLAIMED: NotificationType.UNCLAIMED, SendCondition.UNDECIDED: NotificationType.UNDECIDED}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Routed:
    """What one run did. `behind`: something is there that it could not read yet, or had no room for."""

    ran: bool = False
    messages: int = 0
    behind: bool = False


@dataclass(frozen=True, slots=True)
class _Told:
    """One moment that routes judge, with the entry that it comes from. `deadline` is kept for grouping."""

    entry: Entry
    facts: MessageFacts
    subject: str
    only_if: SendCondition = SendCondition.ALWAYS
    due_at: datetime | None = None
    deadline: datetime | None = None


@transaction.atomic
def route(*, now: datetime, via: str) -> Routed:
    """Make messages of what is new on the timeline, at most so much at once. Another run does so meanwhile: nothing."""
    if not try_take(Lock.ROUTER):
        return Routed()
    LastRun.objects.update_or_create(name=NAME, defaults={"ran_at": now, "via": via})
    horizon = _horizon()
    cursor = Cursor.objects.filter(name=NAME).first()
    if cursor is None:
        # Of what was before the first of all runs, nobody is told.
        _move(*horizon, LAST_ID, now=now)
        return Routed(ran=True)
    entries = _entries(cursor, horizon)
    full = len(entries) == MOST
    # These are met again in their place; no channel hears of an entry twice.
    ahead = _first_of_others(entries, horizon) if full else []
    rows = _each_alone([*entries, *ahead], now=now)
    Message.objects.bulk_create(rows, ignore_conflicts=True)
    place = (entries[-1].era, entries[-1].xid, entries[-1].pk) if full else (*horizon, LAST_ID)
    if entries or place[:2] > (cursor.era, cursor.xid):
        _move(*place, now=now)
    if entries:
        queue.mirror_soon()
    return Routed(ran=True, messages=len(rows), behind=full or _more_above(horizon))


def quiet_for(*, now: datetime) -> float:
    """For how many seconds nobody has routed; endless where nobody ever has."""
    return seconds_since_run(NAME, now=now)


def _horizon() -> tuple[int, int]:
    """The newest era, and the newest transaction that no other can come before any more."""
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
    found = Entry.objects.filter(behind, below, kind__in=KINDS).select_related("availability_set", "cache")
    return list(found.order_by("era", "xid", "id")[:MOST])


def _first_of_others(entries: Sequence[Entry], horizon: tuple[int, int]) -> list[Entry]:
    """Behind these entries: the first events that sets are told of which are not among them. What one set brings does
    not keep others waiting.
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
        found = [pk for (pk,) in cursor.fetchall()]
    rows = Entry.objects.filter(pk__in=found).select_related("availability_set", "cache")
    return list(rows.order_by("era", "xid", "id")) if found else []


def _more_above(horizon: tuple[int, int]) -> bool:
    """Whether something is committed that a transaction which still runs might come before."""
    return Entry.objects.filter(era=horizon[0], xid__gt=horizon[1], kind__in=KINDS).exists()


def _each_alone(entries: Sequence[Entry], *, now: datetime) -> list[Message]:
    """The messages of these entries. One of which something goes wrong is told to nobody, and that is an alarm; all the
    others are routed.
    """
    odd: list[Message] = []

    def fail(entry: Entry, error: Exception) -> None:
        log.error("router.entry", entry=entry.pk, error=f"{type(error).__name__}: {error}")
        odd.append(_unreadable(entry, now=now))

    return bisect_failures(entries, partial(_messages, now=now), fail) + odd


def _unreadable(entry: Entry, *, now: datetime) -> Message:
    moment = OF_ENTRY.get(EntryKind(entry.kind), NotificationType.OVERDUE)
    told = _Told(entry, MessageFacts(moment=moment, at=entry.at, severity=type_severity(moment)), _subject(entry))
    return _message(told, now=now, state=MessageState.UNROUTED, why="own-failure")


def _messages(entries: Sequence[Entry], *, now: datetime) -> list[Message]:
    rows = route_services.messages(entries, now=now)
    entries = [entry for entry in entries if not route_services.may_be_personal(entry)]
    routes = routes_in_force() if entries else ()
    if not routes:
        return rows
    facts = load_facts({entry.event_id for entry in entries if entry.event_id is not None}, now=now)
    known = experiences([one.set_id for one in facts.values()])
    _forget_moved(entries)
    keeping = _keeping(facts)
    for entry in entries:
        for told in _moments(entry, facts.get(entry.event_id or 0), known, now=now):
            found = list(_through(told, routes, now=now))
            if told.facts.moment in FOLLOWED:
                known_by = {row.channel_id for row in found if not row.only_if}
                others = sorted(keeping[told.subject] - known_by)
                found += [_message(told, now=now, channel_id=channel_id) for channel_id in others]
            if not found and told.facts.moment in ALWAYS_NOTIFY and not told.facts.drill:
                found = [_message(told, now=now, state=MessageState.UNROUTED)]
            rows += found
    return rows


def _keeping(event_pks: Iterable[int]) -> Mapping[str, set[int]]:
    """By subject, the channels (row ids) that keep a thing for one of these events."""
    found: dict[str, set[int]] = defaultdict(set)
    rows = Reference.objects.filter(
        subject__in=[f"event:{pk}" for pk in event_pks],
        channel__kind__in=FOLLOWING,
        channel__enabled=True,
        channel__deleted_at=None,
    )
    for subject, channel_id in rows.values_list("subject", "channel"):
        found[subject].add(channel_id)
    return found


def _forget_moved(entries: Iterable[Entry]) -> None:
    """Steps before *decide by* are told by the clock: where NotBefore has moved, they are reckoned anew."""
    moved = {entry.event_id for entry in entries if OF_ENTRY.get(EntryKind(entry.kind)) is NotificationType.CHANGED}
    steps = Message.objects.filter(
        event__in=moved, state=MessageState.WAITING.value, only_if=SendCondition.UNDECIDED.value
    )
    steps.update(state=MessageState.DROPPED.value, why="moved")


def _moments(entry: Entry, event: EventFacts | None, known: Experiences, *, now: datetime) -> Iterator[_Told]:
    """What an entry is to whoever may be told: nothing more of an event that nobody knows any longer."""
    moment = OF_ENTRY.get(EntryKind(entry.kind))
    if entry.event_id is not None:
        if event is None:
            return
        by = _decide_by(event, known, now=now)
        base = MessageFacts(
            moment=moment or NotificationType.OVERDUE,
            at=entry.at,
            severity=severity(event).value,
            event_type=event.event_type,
            source=event.source,
            place=event.place,
            drill=event.drill,
            decide_by=by,
            by=entry.actor,
        )
        subject = f"event:{entry.event_id}"
        if moment is not None:
            yield _Told(entry, base, subject, deadline=by)
        if EntryKind(entry.kind) in AWAITING_ANSWER:
            overdue = entry.at + order_timeouts().by_hand
            yield _Told(
                entry,
                replace(base, moment=NotificationType.OVERDUE),
                subject,
                only_if=SendCondition.UNANSWERED,
                due_at=overdue,
                deadline=event.not_before,
            )
    elif moment is not None:
        yield _Told(entry, _of_no_event(entry, moment), _subject(entry))


def _of_no_event(entry: Entry, moment: NotificationType) -> MessageFacts:
    place, how_bad = None, type_severity(moment)
    if entry.cache is not None:
        place, how_bad = Place("cache", "", entry.cache.service), cache_severity(entry.cache.tier)
    elif entry.availability_set is not None:
        row = entry.availability_set
        place = Place(row.kind, row.name, row.service, row.resource_group)
    return MessageFacts(moment=moment, at=entry.at, severity=how_bad.value, place=place, by=entry.actor)


def _subject(entry: Entry) -> str:
    named = (
        ("event", entry.event_id),
        ("maintenance", entry.maintenance_id),
        ("cache", entry.cache_id),
        ("machine", entry.machine_id),
        ("set", entry.availability_set_id),
        ("channel", entry.data.get("channel_id")),
    )
    # What begins and is over has one name for both.
    of_all = f"fleet:{entry.data.get('code') or entry.kind}"
    return next((f"{what}:{row_id}" for what, row_id in named if row_id is not None), of_all)


def _decide_by(event: EventFacts, known: Experiences, *, now: datetime) -> datetime | None:
    """As the card says it. None once there is nothing left to decide."""
    if event.status is not EventStatus.SCHEDULED or event.not_before is None or event.not_before <= now:
        return None
    if is_advice(event.event_type):
        return None
    took = known.of(event.set_id, event.event_type).relay_seconds
    relay = order_timeouts().answer if took is None else timedelta(seconds=took)
    until = undo_until(event, now=now, seconds=settings.APPROVAL_UNDO_SECONDS)
    return decide_by(event.not_before, relay=relay, undo=until - now if until else timedelta())


def _through(told: _Told, routes: Sequence[RouteInForce], *, now: datetime) -> Iterator[Message]:
    """A message for each channel to which a route leads that wants it: once, however many routes do."""
    reached: set[tuple[int, str]] = set()
    for one in routes:
        if not matches(one.route, told.facts, now=now) or not may_hear(one.owner, told.facts):
            continue
        step = one.route.only_if
        for channel in one.channels:
            if told.subject == f"channel:{channel.pk}" or (not step and (channel.pk, "") in reached):
                continue
            if not step:
                reached.add((channel.pk, ""))
            due = told_at(one.route, told.facts, now=now) if step else told.due_at
            yield _message(told, now=now, through=one, channel_id=channel.pk, step=step, due=due)


def _message(
    told: _Told,
    *,
    now: datetime,
    through: RouteInForce | None = None,
    channel_id: int | None = None,
    step: SendCondition = SendCondition.ALWAYS,
    due: datetime | None = None,
    state: MessageState = MessageState.WAITING,
    why: str = "",
) -> Message:
    soonest = now + timedelta(seconds=settings.NOTIFICATION_GROUP_WAIT_SECONDS)
    return Message(
        moment=STEPS.get(step, told.facts.moment).value,
        subject=told.subject,
        entry_id=told.entry.pk,
        event_id=told.entry.event_id,
        at=told.entry.at,
        created_at=now,
        # What is due by the clock has waited long enough.
        due_at=soonest if due is None else max(due, now),
        only_if=(step or told.only_if).value,
        severity=told.facts.severity,
        service=told.facts.place.service if told.facts.place else "",
        drill=told.facts.drill,
        deadline=told.deadline,
        channel_id=channel_id,
        route_id=through.route.route_id if through else None,
        route_version=through.route.version if through else None,
        state=state.value,
        why=why,
    )
