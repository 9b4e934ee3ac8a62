"""Open orders and drill instructions of machines."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, F
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.approvals.conditions import When, is_start_decided, recheck
from fleet.domain.reasons import Reason
from fleet.domain.shapes import grouped
from fleet.domain.states import OPEN_ORDERS, RELAYED_APPROVALS, ApprovalState, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Instruction, Order, Preparation, Rehearsal, ScheduledEvent, Stop, driver
from fleet.models.facts.decisions import load_decisions, whose_turn
from fleet.models.facts.events import load_facts
from fleet.operations import clock, wake_up
from fleet.operations.orders import sign
from fleet.operations.timeline.entries import tell_event

REHEARSE, APPROVE, START, CANCEL = "rehearse", "approve", "start", "cancel"


def instruct(
    rehearsals: Collection[Rehearsal],
    what: str,
    *,
    now: datetime,
    expires_at: datetime | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Write one instruction to each of these machines, only once for each `what`, and wake them after the commit."""
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


def waiting_instructions(*, machine_ids: Collection[int] | None = None) -> list[tuple[int, wire.Order]]:
    """Return the open instructions of these machines (row ids) or all, each with the machine's row id. They are not
    signed. Runs one query.
    """
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
    """Mark instructions as delivered, because their machine has them. Return how many were not marked before.

    `held` are (machine row id, order id, via).
    """
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
    """Return the row ids of the drills' events to which these instructions belong."""
    rows = ScheduledEvent.objects.filter(rehearsed_as__rehearsals__instructions__in=order_ids)
    return set(rows.values_list("pk", flat=True))


def take_answer(*, machine_id: int, order_id: uuid.UUID, data: wire.ReceiptData, now: datetime) -> bool:
    """Process a receipt, if it is for an instruction to this machine. Return whether it was."""
    row = (
        Instruction.objects.select_related("rehearsal__drill__event", "machine")
        .filter(pk=order_id, machine_id=machine_id)
        .first()
    )
    if row is None:
        return False
    _delivered(row, data.via[:50], now)
    reason = data.reason[:500].replace("\x00", "")
    taken = Instruction.objects.filter(pk=row.pk, answered_at__isnull=True).update(
        answered_at=now, outcome=data.outcome, reason=reason, closed_at=now
    )
    if not taken or row.what != REHEARSE or data.outcome == wire.ANSWERED:
        return True
    why = Reason("drill-refused", reason=reason)
    Rehearsal.objects.filter(pk=row.rehearsal_id).update(left_out=why.stored)
    name = row.machine.resource_name
    about = {"machine_id": machine_id, "machine": name, "reason": why}
    tell_event(EntryKind.DRILL_STEP, machine_actor(name), row.rehearsal.drill.event, at=now, **about)
    return True


# The queue of machines: their open orders and instructions of drills. The rows are the queue.

OPEN = ", ".join(f"'{state.value}'" for state in OPEN_ORDERS)
WAITED_FOR = f"""
    SELECT machine_id FROM {Order._meta.db_table} WHERE state IN ({OPEN})
    UNION SELECT machine_id FROM {Instruction._meta.db_table} WHERE closed_at IS NULL
"""


def waited_for() -> set[int]:
    """Return the machines (row ids) that may have an open order or instruction.

    Runs one statement on two small indexes, because it runs many times a second for the whole fleet.
    """
    with driver.cursor() as cursor:
        return {machine_id for (machine_id,) in cursor.execute(WAITED_FOR)}


def waiting_orders(*, machine_ids: Collection[int] | None = None) -> dict[int, list[wire.Order]]:
    """Return the open orders and instructions of these machines (row ids) or all, signed, by machine.

    The caller sets `via`. While all approvals are stopped, no order is returned. An order whose decision does not cover
    the event as it is now is omitted, and the next reconciliation ends it.
    """
    # In one statement with the orders: nothing is handed out that was read after the stop.
    rows = Order.objects.filter(~Exists(Stop.objects.filter(lifted_at__isnull=True)))
    rows = rows.filter(machine__revoked_at__isnull=True, state__in=OPEN_ORDERS)
    # A machine that has moved into another set has no part in the event.
    rows = rows.filter(machine__availability_set=F("approval__event__availability_set"))
    rows = rows.select_related("machine", "approval__event")
    if machine_ids is not None:
        rows = rows.filter(machine_id__any=machine_ids)
    waiting = _still_decided(list(rows.defer("machine__compute").order_by("offered_at", "id")))
    orders = [
        wire.Order(
            id=str(order.pk),
            machine_id=order.machine.vm_id,
            event_id=order.spelled,
            issued_at=order.offered_at,
            expires_at=order.expires_at,
            drill={"step": APPROVE} if order.approval.event.drill else None,
            request_id=order.approval.request_id,
            trace_id=order.approval.trace_id,
        )
        for order in waiting
    ]
    drilled = waiting_instructions(machine_ids=machine_ids)
    whose = [order.machine_id for order in waiting] + [machine_id for machine_id, _ in drilled]
    orders += [order for _, order in drilled]
    return grouped(zip(whose, sign.signed(orders, now=clock.now()), strict=True))


def decided_plans(*, now: datetime) -> dict[int, list[str]]:
    """Return the events (EventIds) for which a machine plans to prepare later although their start is decided, by
    machine (row id).

    While all approvals are stopped, those that wait do not count. Runs one query, a second one while an approval waits
    or is being sent, and up to four more if it has such machines.
    """
    rows = Approval.objects.filter(state__in=[ApprovalState.WAITING.value, *RELAYED_APPROVALS])
    approvals = {row.event_id: row for row in rows.only("event", "state", "when", "due_at", "wave")}
    plans = Preparation.objects.filter(
        event_id__any=list(approvals),
        event__status=EventStatus.SCHEDULED.value,
        machine__availability_set=F("event__availability_set"),
        prepare_planned_at__isnull=False,
        prepare_outcome="",
        recover_outcome="",
    )
    planned = list(plans.values_list("machine_id", "event_id", "event__event_id")) if approvals else []
    waves = {wave_id for _, event_pk, _ in planned if (wave_id := approvals[event_pk].wave_id)}
    turns = whose_turn(waves, now=now)
    is_stopped = bool(planned) and Stop.objects.filter(lifted_at__isnull=True).exists()
    found: dict[int, list[str]] = defaultdict(list)
    for machine_id, event_pk, event_id in planned:
        approval = approvals[event_pk]
        is_met = is_start_decided(When(approval.when), due_at=approval.due_at, may_go=approval.pk in turns, now=now)
        if approval.state in RELAYED_APPROVALS or (is_met and not is_stopped):
            found[machine_id].append(event_id)
    return found


def _still_decided(orders: list[Order]) -> list[Order]:
    """Return the orders whose approvals may still be sent. Facts are loaded after the orders."""
    if not orders:
        return []
    now = clock.now()
    approvals = {order.approval_id: order.approval for order in orders}
    facts = load_facts([approval.event_id for approval in approvals.values()], now=now)
    decisions = load_decisions(list(approvals.values()), facts, now=now)
    sent = {
        pk for pk, approval in approvals.items() if recheck(decisions[pk], facts[approval.event_id], now=now) is None
    }
    return [order for order in orders if order.approval_id in sent]
