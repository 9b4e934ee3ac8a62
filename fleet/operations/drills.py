"""Drills: start and stop by users, progress and end, and the sightings of their events."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest
from drydock_agent import wire

from fleet.domain import drills as domain
from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.actor import machine as machine_actor
from fleet.domain.events import NOT_STATED
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.scheduling import AT_ONCE, QuarantineKind
from fleet.domain.states import LIVE_APPROVALS, OPEN_EVENTS, ApprovalState, Certainty, EndedAs, EventStatus, Presence
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import Approval, AvailabilitySet, Machine, Preparation, ScheduledEvent, Sighting
from fleet.models.drills import Drill, Instruction, Rehearsal
from fleet.models.facts.events import load_facts, machine_presence, place_of
from fleet.operations import locks
from fleet.operations.events import compute
from fleet.operations.intake.keep import AgentReport
from fleet.operations.orders import advance as orders
from fleet.operations.orders import queue
from fleet.operations.quarantine import Quarantine
from fleet.operations.rights import acting, require
from fleet.operations.timeline.entries import tell, tell_event


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested parameters of a drill. Without `machines` (resource names), the first live machine of the set is
    affected.
    """

    event_type: str = domain.DEFAULT_TYPE
    machines: Sequence[str] = ()
    notice_seconds: int = domain.DEFAULT_NOTICE_SECONDS
    duration_seconds: int = domain.DEFAULT_DURATION_SECONDS


@transaction.atomic
def begin(*, set_id: int, actor: Actor, now: datetime, wanted: Wanted | None = None) -> Drill:
    """Start a drill of a set: each live machine simulates an event. Nothing is sent to Azure.

    Raises Refused: `not-permitted`, `validation`, `unknown-set`, `real-event-open` (details `event`), `drill-open`
    (details `drill`), `no-live-machine`.
    """
    wanted = wanted or Wanted()
    actor = acting(actor, Right.APPROVE, doing="drill")
    found = AvailabilitySet.objects.select_related("merged_into").filter(pk=set_id).first()
    home = require_found(found, "unknown-set", Reason("drill-of-no-set"))
    home = home.merged_into or home
    require(actor, Right.APPROVE, place_of(home), doing="drill")
    _check_wanted(wanted)
    # Two people may want to drill one set at once.
    locks.take(locks.Lock.DRILLS, of=str(home.pk))
    _nothing_else(home)
    rows = Machine.objects.filter(availability_set=home, revoked_at__isnull=True).defer("compute")
    machines = list(rows.select_related("presence", "latest_document").order_by("resource_name", "pk"))
    presences = {machine.pk: machine_presence(machine, now=now) for machine in machines}
    live = [machine for machine in machines if presences[machine.pk] is Presence.LIVE]
    hit = _hit(wanted, machines, live)
    not_before = (now + timedelta(seconds=wanted.notice_seconds)).replace(microsecond=0)
    event = _event(home, hit, wanted, actor.why, not_before, now)
    ends_by = now + timedelta(seconds=wanted.notice_seconds + wanted.duration_seconds) + domain.GRACE
    by = {"started_by": actor.person, "via": actor.via, "token_name": actor.token_name, "comment": actor.why}
    drill = Drill.objects.create(event=event, created_at=now, ends_by=ends_by, **by)
    rehearsals = Rehearsal.objects.bulk_create(
        [Rehearsal(drill=drill, machine=machine, left_out=_left_out(presences[machine.pk])) for machine in machines]
    )
    asked = [row for row in rehearsals if not row.left_out]
    stated = {"not_before": iso(not_before), "duration_seconds": wanted.duration_seconds}
    queue.instruct(asked, queue.REHEARSE, now=now, until=not_before, event=_as_azure_words_it(event), **stated)
    names = [machine.resource_name for machine in hit]
    after = {"drill": drill.pk, "type": wanted.event_type, "machines": ", ".join(names)}
    said = {"set": home.name, "type": wanted.event_type, "machines": names, "not_before": not_before, "live": len(live)}
    tell_event(EntryKind.DRILL_BEGAN, actor, event, at=now, before={"drill": None}, after=after, **said)
    return drill


@transaction.atomic
def stop(*, drill_id: int, actor: Actor, now: datetime) -> Drill:
    """Stop a running drill. Raises Refused: `not-permitted`, `validation`, `unknown-drill`, `too-late`."""
    actor = acting(actor, Right.APPROVE, doing="stop-drill")
    found = Drill.objects.select_related("event__availability_set").filter(pk=drill_id).first()
    drill = require_found(found, "unknown-drill", Reason("unknown-drill"))
    require(actor, Right.APPROVE, place_of(drill.event.availability_set), doing="stop-drill")
    compute.lock([drill.event_id])
    drill.refresh_from_db()
    ending = domain.Ending(domain.Outcome.STOPPED, Reason("drill-stopped-by", by=actor.name, comment=actor.why))
    if drill.closed_at is not None or not close(drill, ending, actor, now=now):
        raise Refused("too-late", Reason("drill-over"))
    drill.refresh_from_db()
    return drill


def _check_wanted(wanted: Wanted) -> None:
    if wanted.event_type not in domain.KINDS:
        raise Refused("validation", Reason("drill-of-no-type", types=list(domain.KINDS)))
    for what, seconds, (least, most) in (
        ("notice", wanted.notice_seconds, domain.NOTICE_SECONDS),
        ("duration", wanted.duration_seconds, domain.DURATION_SECONDS),
    ):
        if not least <= seconds <= most:
            raise Refused("validation", Reason("drill-out-of-bounds", what=what, least=least, most=most))


def _nothing_else(home: AvailabilitySet) -> None:
    open_events = ScheduledEvent.objects.filter(availability_set=home, status__in=OPEN_EVENTS)
    real = open_events.filter(drill=False).order_by("pk").first()
    if real is not None:
        raise Refused("real-event-open", Reason("real-event-open", event_type=real.event_type), event=real.event_id)
    other = Drill.objects.filter(event__availability_set=home, closed_at__isnull=True).first()
    if other is not None:
        raise Refused("drill-open", Reason("drill-open"), drill=other.pk)


def _hit(wanted: Wanted, machines: Sequence[Machine], live: Sequence[Machine]) -> list[Machine]:
    if not live:
        raise Refused("no-live-machine", Reason("drill-no-live-machine"))
    if not wanted.machines:
        return [live[0]]
    by_name = {machine.resource_name.lower(): machine for machine in machines}
    unknown = [name for name in wanted.machines if name.strip().lower() not in by_name]
    if unknown:
        raise Refused("validation", Reason("drill-of-no-machine", machines=unknown))
    chosen = {by_name[name.strip().lower()].pk: by_name[name.strip().lower()] for name in wanted.machines}
    silent = [machine.resource_name for machine in chosen.values() if machine not in live]
    if silent:
        raise Refused("validation", Reason("drill-of-silent-machines", machines=silent))
    return list(chosen.values())


def _left_out(presence: Presence) -> str:
    return "" if presence is Presence.LIVE else Reason("drill-left-out", presence=presence.value).stored


def _event(
    home: AvailabilitySet, hit: Sequence[Machine], wanted: Wanted, comment: str, not_before: datetime, now: datetime
) -> ScheduledEvent:
    return ScheduledEvent.objects.create(
        event_id=f"{wire.DRILL_PREFIX}{uuid.uuid4()}".upper(),
        availability_set=home,
        drill=True,
        created_at=now,
        first_seen_at=now,
        event_type=wanted.event_type,
        resource_type="VirtualMachine",
        source="Platform",
        description=f"Drill. {comment}".strip(),
        duration_seconds=wanted.duration_seconds,
        not_before=not_before,
        resources=[machine.resource_name for machine in hit],
        watched=False,
    )


def _as_azure_words_it(event: ScheduledEvent) -> dict[str, Any]:
    """Return the event in the form of Azure's document, which hooks get on standard input."""
    return {
        "EventId": event.event_id,
        "EventStatus": "Scheduled",
        "EventType": event.event_type,
        "ResourceType": event.resource_type,
        "Resources": event.resources,
        "NotBefore": format_datetime(event.not_before, usegmt=True) if event.not_before else "",
        "Description": event.description,
        "EventSource": event.source,
        "DurationInSeconds": event.duration_seconds,
    }


# From the approval to Started on the machines that were not asked.
START = timedelta(seconds=2)
# Of one tick: each costs some queries.
PORTION = 50
UNDER_WAY = "closed_at IS NULL"
RECOVERED = ("succeeded", "failed", "timed-out", "nothing")


def advance(*, now: datetime, event_pks: Collection[int] = ()) -> int:
    """Advance the due drills and those in the sets of these events (row ids): start further machines, or end the drill.

    Return how many changed. The first check takes no locks; each drill then has its own transaction.
    """
    if event_pks:
        sets = ScheduledEvent.objects.filter(pk__any=list(event_pks)).values("availability_set")
        of_sets = Drill.objects.filter(closed_at__isnull=True, event__availability_set__in=sets)
        locks.make_due(of_sets.filter(next_check_at__gt=AT_ONCE))
    taken = locks.take_due(Drill, now=now, most=PORTION, open_only=UNDER_WAY)
    if not taken:
        return 0
    moved = 0
    later: dict[int, datetime] = {}
    with Quarantine(QuarantineKind.DRILL, now=now) as apart:
        for drill in Drill.objects.filter(pk__in=taken).select_related("event").order_by("pk"):
            moved += apart.run(drill.pk, partial(_check, drill, now=now)) or False
            due_again = domain.due_at(ended_at=drill.event.ended_at, ends_by=drill.ends_by, now=now)
            later[drill.pk] = apart.waits_until(drill.pk) or due_again
    locks.settle_due(Drill, later, now=now)
    return moved


def _check(drill: Drill, *, now: datetime) -> bool:
    to_move = _ending(drill, now) is not None or bool(_to_start(drill))
    return to_move and _move_on(drill.pk, drill.event_id, now=now)


@transaction.atomic
def _move_on(drill_id: int, event_pk: int, *, now: datetime) -> bool:
    compute.lock([event_pk])
    drill = Drill.objects.select_related("event").get(pk=drill_id)
    if drill.closed_at is not None:
        return False
    ending = _ending(drill, now)
    if ending is not None:
        return close(drill, ending, DRYDOCK, now=now)
    queue.instruct(_to_start(drill), queue.START, now=now, until=drill.event.not_before, at=iso(now + START))
    return True


def close(drill: Drill, ending: domain.Ending, actor: Actor, *, now: datetime) -> bool:
    """End a drill whose event is locked, and send a cancellation to machines that still rehearse. Return False if it
    had ended.
    """
    outcome = ending.outcome.value
    found = Drill.objects.filter(pk=drill.pk, closed_at__isnull=True)
    if not found.update(closed_at=now, outcome=outcome, reason=ending.reason.stored):
        return False
    rows = list(Rehearsal.objects.filter(drill=drill).order_by("pk"))
    Instruction.objects.filter(rehearsal__in=rows, closed_at__isnull=True).update(closed_at=now)
    over = Sighting.objects.filter(event=drill.event_id, gone_at__isnull=False)
    gone = set(over.values_list("machine_id", flat=True))
    begun = Instruction.objects.filter(what=queue.REHEARSE, delivered_at__isnull=False)
    reached = set(begun.filter(rehearsal__in=rows).values_list("rehearsal_id", flat=True))
    still = [row for row in rows if row.pk in reached and row.machine_id not in gone and not row.left_out]
    if still:
        queue.instruct(still, queue.CANCEL, now=now, until=now + timedelta(seconds=3600))
    Sighting.objects.filter(event=drill.event_id, gone_at__isnull=True).update(
        gone_at=Greatest(F("listed_at"), now), gone_incarnation=F("listed_incarnation") + 1
    )
    ended = {"status": EventStatus.ENDED.value, "ended_as": EndedAs.CANCELLED.value, "certainty": Certainty.SEEN.value}
    ScheduledEvent.objects.filter(pk=drill.event_id, sightings__isnull=True).update(ended_at=now, **ended)
    events = compute.lock([drill.event_id])
    compute.compute_state(events, now=now)
    orders.advance_events(events, now=now, via="beat")
    # No receipt is awaited for the open approvals of a drill that Drydock has ended.
    unanswered = [state.value for state in LIVE_APPROVALS if state is not ApprovalState.ACCEPTED]
    for approval in Approval.objects.filter(event=drill.event_id, state__in=unanswered):
        facts, why = load_facts([drill.event_id], now=now)[drill.event_id], Reason("drill-over-before-answer")
        orders.close(approval, ApprovalState.VOID, DRYDOCK, facts=facts, now=now, reason=why)
    (event,) = events
    said: dict[str, Any] = {"outcome": outcome, "reason": ending.reason, "drill": drill.pk}
    said |= {"before": {"drill": "running"}, "after": {"drill": outcome}}
    tell_event(EntryKind.DRILL_ENDED, actor, event, at=now, **said)
    return True


def _approved(event_id: int) -> bool:
    is_approved = Q(accepted_at__isnull=False) | Q(state=ApprovalState.CONFIRMED.value)
    return Approval.objects.filter(is_approved, event=event_id).exists()


def _ending(drill: Drill, now: datetime) -> domain.Ending | None:
    event = drill.event
    open_events = ScheduledEvent.objects.filter(availability_set=event.availability_set_id, status__in=OPEN_EVENTS)
    real = open_events.filter(drill=False).order_by("pk").first()
    is_approved = event.status == EventStatus.ENDED and _approved(event.pk)
    real_type = real.event_type if real else None
    ending = domain.ending_of(drill, _machines(drill), approved=is_approved, real_event=real_type, now=now)
    is_empty = ending is not None and ending.outcome is domain.Outcome.NO_MACHINE
    if ending is not None and is_empty and Sighting.objects.filter(event=event).exists():
        # What began to rehearse and was turned away since then: it did not come to its end.
        return domain.Ending(domain.Outcome.UNFINISHED, ending.reason)
    return ending


def _machines(drill: Drill) -> tuple[domain.MachineInDrill, ...]:
    sightings = {row.machine_id: row for row in Sighting.objects.filter(event=drill.event_id)}
    hooks = {row.machine_id: row for row in Preparation.objects.filter(event=drill.event_id)}
    hit = {name.lower() for name in drill.event.resources}
    found = []
    for row in Rehearsal.objects.filter(drill=drill).select_related("machine").defer("machine__compute"):
        sighting, said = sightings.get(row.machine_id), hooks.get(row.machine_id)
        nothing = said is not None and said.prepare_outcome == "nothing" and not said.recover_outcome
        found.append(
            domain.MachineInDrill(
                name=row.machine.resource_name,
                hit=row.machine.resource_name.lower() in hit,
                left_out=bool(row.left_out),
                listed=sighting is not None,
                gone=sighting is not None and sighting.gone_at is not None,
                gone_reason=row.gone_reason,
                # A plan alone is dropped with the event, without a report.
                hooks_heard=said is not None and bool(said.prepare_outcome or said.recover_outcome),
                hooks_over=nothing or (said is not None and said.recover_outcome in RECOVERED),
            )
        )
    return tuple(found)


def _to_start(drill: Drill) -> list[Rehearsal]:
    """Return the machines to which the start of the event must be sent: it was approved, or has started on one
    machine.
    """
    if drill.event.status != EventStatus.STARTED.value and not _approved(drill.event_id):
        return []
    waiting = Sighting.objects.filter(event=drill.event_id, gone_at__isnull=True, started_at__isnull=True)
    sent = Instruction.objects.filter(rehearsal__drill=drill, what=queue.START)
    return list(
        Rehearsal.objects.filter(drill=drill, machine__in=waiting.values("machine_id"))
        .exclude(pk__in=sent.values("rehearsal_id"))
        .order_by("pk")
    )


# What machines say of a drill becomes sightings of its event.

RehearsalReport = AgentReport[wire.RehearsalData]


def events_of(reports: Iterable[RehearsalReport]) -> set[int]:
    """Return the row ids of the drills' events that these reports are about."""
    ids = [uuid.UUID(one.data.rehearsal) for one in reports]
    return queue.events_of_instructions(ids) if ids else set()


def take(reports: Sequence[RehearsalReport], *, now: datetime) -> dict[int, list[int]]:
    """Process machines' reports about drills, whose events the caller has locked.

    Return the machines (row ids) that reported for the first time, by event (row id).
    """
    new: dict[int, list[int]] = {}
    for one in sorted(reports, key=lambda one: (one.machine_id, one.position)):
        rows = Instruction.objects.filter(pk=one.data.rehearsal, machine_id=one.machine_id, what=queue.REHEARSE)
        instruction = rows.select_related("rehearsal__drill__event").first()
        if instruction is None:
            reason = Reason("rehearsal-unknown")
            tell(EntryKind.REPORT_UNKNOWN, machine_actor(""), at=now, machine_id=one.machine_id, reason=reason)
            continue
        rehearsal = instruction.rehearsal
        if one.position <= (rehearsal.epoch, rehearsal.seq):
            continue
        rehearsal.epoch, rehearsal.seq = one.position
        if one.data.step == "gone":
            rehearsal.gone_reason = one.data.reason
        rehearsal.left_out = ""
        rehearsal.save()
        if _see(rehearsal.drill, one, now):
            new.setdefault(rehearsal.drill.event_id, []).append(one.machine_id)
    return new


def _see(drill: Drill, one: RehearsalReport, now: datetime) -> bool:
    """Store a machine's report as its sighting of the drill's event. Return whether it is the first."""
    event = drill.event
    known = Sighting.objects.filter(event=event, machine_id=one.machine_id).first()
    if drill.closed_at is not None and one.data.step != "gone":
        # The drill was announced as ended: no report reopens it.
        return False
    row = known or Sighting(event=event, machine_id=one.machine_id, first_at=one.at, first_received_at=now)
    if one.data.step == "gone":
        if known is None:
            return False
        row.gone_epoch, row.gone_seq = one.position
        row.gone_at, row.gone_incarnation = one.at, (row.listed_incarnation or 0) + 1
    else:
        started = one.data.step == "started"
        row.listed_epoch, row.listed_seq = one.position
        row.listed_at, row.listed_incarnation = one.at, 2 if started else 1
        row.spelled, row.status = event.event_id, "Started" if started else "Scheduled"
        for field in NOT_STATED:
            setattr(row, field, getattr(event, field))
        if started and row.started_at is None:
            row.started_at = one.at
    row.save()
    return known is None
