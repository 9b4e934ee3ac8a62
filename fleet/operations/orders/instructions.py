"""Instructions: orders of a drill to its machines. As with all orders the rows are the queue; wake-ups make it fast."""

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Instruction, Rehearsal, ScheduledEvent
from fleet.operations import wake_up
from fleet.operations.timeline.entries import entry

REHEARSE, APPROVE, START, CANCEL = "rehearse", "approve", "start", "cancel"


def instruct(
    rehearsals: Collection[Rehearsal],
    what: str,
    *,
    now: datetime,
    expires_at: datetime | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Write one instruction to each of these machines, once, and wake them after the commit."""
    Instruction.objects.bulk_create(
        [
            Instruction(
                id=uuid.uuid4(),
                rehearsal=rehearsal,
                machine_id=rehearsal.machine_id,
                what=what,
                data=data or {},
                written_at=now,
                expires_at=expires_at,
            )
            for rehearsal in rehearsals
        ],
        ignore_conflicts=True,
    )
    machine_ids = [rehearsal.machine_id for rehearsal in rehearsals]
    transaction.on_commit(lambda: wake_up.wake_machines(machine_ids, via="look"))


def waiting(*, machine_ids: Collection[int] | None = None) -> list[tuple[int, wire.Order]]:
    """What waits for these machines, or for all, each with its machine (row id); unsigned. One query."""
    rows = Instruction.objects.filter(closed_at__isnull=True)
    if machine_ids is not None:
        rows = rows.filter(machine_id__any=machine_ids)
    rows = rows.select_related("machine", "rehearsal__drill__event").defer("machine__compute")
    return [
        (
            row.machine_id,
            wire.Order(
                id=str(row.pk),
                machine_id=row.machine.vm_id,
                event_id=row.rehearsal.drill.event.event_id,
                issued_at=row.written_at,
                expires_at=row.expires_at,
                drill={"step": row.what, **row.data},
            ),
        )
        for row in rows.order_by("written_at", "id")
    ]


def note_held(*, held: Sequence[tuple[int, uuid.UUID, str]], now: datetime) -> int:
    """(machine row id, order id, via): instructions that their machine has are delivered; how many are news."""
    waiting_rows = Instruction.objects.filter(pk__in=[order_id for _, order_id, _ in held], delivered_at__isnull=True)
    machines = {order_id: (machine_id, via) for machine_id, order_id, via in held}
    noted = 0
    for row in waiting_rows.order_by("pk"):
        machine_id, via = machines[row.pk]
        if machine_id == row.machine_id:
            noted += _delivered(row, via, now)
    return noted


def _delivered(row: Instruction, via: str, now: datetime) -> int:
    return Instruction.objects.filter(pk=row.pk, delivered_at__isnull=True).update(delivered_at=now, delivered_by=via)


def events_of(order_ids: Collection[uuid.UUID]) -> set[int]:
    """The row ids of the drills' events that these instructions belong to."""
    rows = ScheduledEvent.objects.filter(rehearsed_as__rehearsals__instructions__in=order_ids)
    return set(rows.values_list("pk", flat=True))


def answered(
    *, machine_id: int, order_id: uuid.UUID, data: wire.ReceiptData, now: datetime
) -> tuple[bool, list[Entry]]:
    """Take a receipt, if it is for an instruction to this machine: whether it was, and the entries to write."""
    row = (
        Instruction.objects.select_related("rehearsal__drill__event", "machine")
        .filter(pk=order_id, machine_id=machine_id)
        .first()
    )
    if row is None:
        return False, []
    _delivered(row, data.via[:50], now)
    reason = data.reason[:500].replace("\x00", "")
    taken = Instruction.objects.filter(pk=row.pk, answered_at__isnull=True).update(
        answered_at=now, outcome=data.outcome, reason=reason, closed_at=now
    )
    if not taken or row.what != REHEARSE or data.outcome == wire.ANSWERED:
        return True, []
    why = Reason("drill-refused", reason=reason)
    Rehearsal.objects.filter(pk=row.rehearsal_id).update(left_out=why.stored)
    event = row.rehearsal.drill.event
    line = entry(
        EntryKind.DRILL_STEP,
        machine_actor(row.machine.resource_name),
        at=now,
        event_id=event.pk,
        set_id=event.availability_set_id,
        machine_id=machine_id,
        machine=row.machine.resource_name,
        reason=why,
    )
    return True, [line]
