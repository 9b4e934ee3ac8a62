"""Progress and end of drills, and the sightings of their events."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.actor import machine as machine_actor
from fleet.domain.drills import Ending, MachineInDrill, Outcome, due_at, ending_of
from fleet.domain.events import NOT_STATED
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import AT_ONCE, QuarantineKind
from fleet.domain.states import LIVE_APPROVALS, OPEN_EVENTS, ApprovalState, Certainty, EndedAs, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import (
    Approval,
    Drill,
    Instruction,
    Preparation,
    Rehearsal,
    ScheduledEvent,
    Sighting,
)
from fleet.models.facts.events import load_facts
from fleet.operations.events import compute
from fleet.operations.intake.keep import AgentReport
from fleet.operations.locks import make_due, settle_due, take_due
from fleet.operations.orders import advance as orders
from fleet.operations.orders import queue, states
from fleet.operations.quarantine import Quarantine
from fleet.operations.timeline.entries import tell, tell_event

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
        _make_due(event_pks)
    taken = take_due(Drill, now=now, most=PORTION, open_only=UNDER_WAY)
    if not taken:
        return 0
    moved = 0
    later: dict[int, datetime] = {}
    with Quarantine(QuarantineKind.DRILL, now=now) as apart:
        for drill in Drill.objects.filter(pk__in=taken).select_related("event").order_by("pk"):
            moved += apart.run(drill.pk, partial(_check, drill, now=now)) or False
            due_again = due_at(ended_at=drill.event.ended_at, ends_by=drill.ends_by, now=now)
            later[drill.pk] = apart.waits_until(drill.pk) or due_again
    settle_due(Drill, later, now=now)
    return moved


def _make_due(event_pks: Collection[int]) -> None:
    """Let the next reconciliation check the drills in the sets of these events (row ids)."""
    sets = ScheduledEvent.objects.filter(pk__any=list(event_pks)).values("availability_set")
    make_due(Drill.objects.filter(closed_at__isnull=True, event__availability_set__in=sets, next_check_at__gt=AT_ONCE))


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
    queue.instruct(
        _to_start(drill),
        queue.START,
        now=now,
        data={"at": iso(now + START)},
        expires_at=drill.event.not_before,
    )
    return True


def close(drill: Drill, ending: Ending, actor: Actor, *, now: datetime) -> bool:
    """End a drill whose event is locked, and send a cancellation to machines that still rehearse. Return False if it
    had ended.
    """
    values = {"closed_at": now, "outcome": ending.outcome.value, "reason": ending.reason.stored}
    if not Drill.objects.filter(pk=drill.pk, closed_at__isnull=True).update(**values):
        return False
    rows = list(Rehearsal.objects.filter(drill=drill).order_by("pk"))
    Instruction.objects.filter(rehearsal__in=rows, closed_at__isnull=True).update(closed_at=now)
    over = Sighting.objects.filter(event=drill.event_id, gone_at__isnull=False)
    gone = set(over.values_list("machine_id", flat=True))
    begun = Instruction.objects.filter(what=queue.REHEARSE, delivered_at__isnull=False)
    reached = set(begun.filter(rehearsal__in=rows).values_list("rehearsal_id", flat=True))
    still = [row for row in rows if row.pk in reached and row.machine_id not in gone and not row.left_out]
    if still:
        queue.instruct(still, queue.CANCEL, now=now, expires_at=now + timedelta(seconds=3600))
    Sighting.objects.filter(event=drill.event_id, gone_at__isnull=True).update(
        gone_at=Greatest(F("listed_at"), now), gone_incarnation=F("listed_incarnation") + 1
    )
    unheard = ScheduledEvent.objects.filter(pk=drill.event_id, sightings__isnull=True)
    unheard.update(
        status=EventStatus.ENDED.value,
        ended_at=now,
        ended_as=EndedAs.CANCELLED.value,
        certainty=Certainty.SEEN.value,
    )
    events = compute.lock([drill.event_id])
    compute.compute_state(events, now=now)
    orders.advance_events(events, now=now, via="beat")
    _void(drill, now)
    (event,) = events
    tell_event(
        EntryKind.DRILL_ENDED,
        actor,
        event,
        at=now,
        before={"drill": "running"},
        after={"drill": ending.outcome.value},
        outcome=ending.outcome.value,
        reason=ending.reason,
        drill=drill.pk,
    )
    return True


def _void(drill: Drill, now: datetime) -> None:
    """Void the open approvals of a drill that Drydock has ended. No receipt is awaited for them."""
    unanswered = [state.value for state in LIVE_APPROVALS if state is not ApprovalState.ACCEPTED]
    approvals = list(Approval.objects.filter(event=drill.event_id, state__in=unanswered))
    if approvals:
        facts = load_facts([drill.event_id], now=now)[drill.event_id]
        for approval in approvals:
            reason = Reason("drill-over-before-answer")
            states.close(approval, ApprovalState.VOID, DRYDOCK, facts=facts, now=now, reason=reason)


def _approved(event_id: int) -> bool:
    return Approval.objects.filter(event_id=event_id, accepted_at__isnull=False).exists() or (
        Approval.objects.filter(event_id=event_id, state="CONFIRMED").exists()
    )


def _ending(drill: Drill, now: datetime) -> Ending | None:
    event = drill.event
    real = (
        ScheduledEvent.objects.filter(availability_set=event.availability_set_id, drill=False)
        .filter(status__in=OPEN_EVENTS)
        .order_by("pk")
        .first()
    )
    approved, real_type = event.status == EventStatus.ENDED and _approved(event.pk), real.event_type if real else None
    ending = ending_of(drill, _machines(drill), approved=approved, real_event=real_type, now=now)
    if ending is not None and ending.outcome is Outcome.NO_MACHINE and Sighting.objects.filter(event=event).exists():
        # What began to rehearse and was turned away since then: it did not come to its end.
        return Ending(Outcome.UNFINISHED, ending.reason)
    return ending


def _machines(drill: Drill) -> tuple[MachineInDrill, ...]:
    sightings = {row.machine_id: row for row in Sighting.objects.filter(event=drill.event_id)}
    hooks = {row.machine_id: row for row in Preparation.objects.filter(event=drill.event_id)}
    hit = {name.lower() for name in drill.event.resources}
    found = []
    for row in Rehearsal.objects.filter(drill=drill).select_related("machine").defer("machine__compute"):
        sighting, said = sightings.get(row.machine_id), hooks.get(row.machine_id)
        nothing = said is not None and said.prepare_outcome == "nothing" and not said.recover_outcome
        found.append(
            MachineInDrill(
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
    return queue.events_of(ids) if ids else set()


def take(reports: Sequence[RehearsalReport], *, now: datetime) -> dict[int, list[int]]:
    """Process machines' reports about drills, whose events the caller has locked.

    Return the machines (row ids) that reported for the first time, by event (row id).
    """
    new: dict[int, list[int]] = {}
    for one in sorted(reports, key=lambda one: (one.machine_id, one.position)):
        instruction = (
            Instruction.objects.select_related("rehearsal__drill__event")
            .filter(pk=one.data.rehearsal, machine_id=one.machine_id, what=queue.REHEARSE)
            .first()
        )
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
