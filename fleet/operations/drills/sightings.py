"""What machines say of a drill becomes sightings of its event."""

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.events.statement import NOT_STATED
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.models import Drill, Entry, Instruction, Sighting
from fleet.operations.intake.keep import AgentReport
from fleet.operations.orders import instructions
from fleet.operations.timeline.entries import entry

RehearsalReport = AgentReport[wire.RehearsalData]


def events_of(reports: Iterable[RehearsalReport]) -> set[int]:
    """The row ids of the drills' events that these reports are about."""
    ids = [uuid.UUID(one.data.rehearsal) for one in reports]
    return instructions.events_of(ids) if ids else set()


def take(reports: Sequence[RehearsalReport], *, now: datetime) -> tuple[dict[int, list[int]], list[Entry]]:
    """Merge the reports into sightings of the drills' events, which are locked.

    Returns the machines (row ids) that had said nothing before, by event, and the entries to write.
    """
    new: dict[int, list[int]] = {}
    written: list[Entry] = []
    for one in sorted(reports, key=lambda one: (one.machine_id, one.position)):
        instruction = (
            Instruction.objects.select_related("rehearsal__drill__event")
            .filter(pk=one.data.rehearsal, machine_id=one.machine_id, what=instructions.REHEARSE)
            .first()
        )
        if instruction is None:
            reason = Reason("rehearsal-unknown")
            written.append(
                entry(EntryKind.REPORT_UNKNOWN, machine_actor(""), at=now, machine_id=one.machine_id, reason=reason)
            )
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
    return new, written


def _see(drill: Drill, one: RehearsalReport, now: datetime) -> bool:
    """What the machine says as its sighting of the drill's event; whether it is the first."""
    event = drill.event
    known = Sighting.objects.filter(event=event, machine_id=one.machine_id).first()
    if drill.closed_at is not None and one.data.step != "gone":
        # It is over, as everybody was told: nothing reopens it.
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
