"""Orders and drill instructions of machines: handing them out, and agents' reports about them, with what Azure answered
to `StartRequests`.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Exists, F
from drydock_agent import wire

from fleet.domain import states
from fleet.domain.actor import machine as machine_actor
from fleet.domain.approvals.conditions import When, is_start_decided, recheck
from fleet.domain.db_timeouts import is_timeout
from fleet.domain.reasons import Reason, stored_text
from fleet.domain.shapes import grouped
from fleet.domain.states import OPEN_ORDERS, RELAYED_APPROVALS, ApprovalState, OrderState
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Instruction, Order, Preparation, Rehearsal, ScheduledEvent, Stop, driver
from fleet.models.facts.decisions import load_decisions, whose_turn
from fleet.models.facts.events import load_facts
from fleet.operations import clock, wake_up
from fleet.operations.events import compute
from fleet.operations.intake.keep import AgentReport
from fleet.operations.orders import sign
from fleet.operations.orders.advance import Move, end_open_order, move_all, tell_order
from fleet.operations.quarantine import bisect_failures
from fleet.operations.timeline.entries import tell, tell_event

REHEARSE, APPROVE, START, CANCEL = "rehearse", "approve", "start", "cancel"


def instruct(asked: Collection[Rehearsal], what: str, *, now: datetime, until: datetime | None, **data: Any) -> None:
    """Write one instruction to each of these machines, only once for each `what`, and wake them after the commit."""
    written = {"what": what, "data": data, "written_at": now, "expires_at": until}
    machine_ids = [rehearsal.machine_id for rehearsal in asked]
    rows = [Instruction(id=uuid.uuid4(), rehearsal=one, machine_id=one.machine_id, **written) for one in asked]
    Instruction.objects.bulk_create(rows, ignore_conflicts=True)
    transaction.on_commit(lambda: wake_up.wake_machines(machine_ids, via="look"))


def _waiting_instructions(machine_ids: Collection[int] | None) -> list[tuple[int, wire.Order]]:
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


def _note_instructions(*, held: Sequence[tuple[int, uuid.UUID, str]], now: datetime) -> int:
    """Mark instructions as delivered, because their machine has them. Return how many were not marked before.

    `held` are (machine row id, order id, via).
    """
    paths = {(machine_id, order_id): via for machine_id, order_id, via in held}
    rows = Instruction.objects.filter(pk__in=[order_id for _, order_id, _ in held], delivered_at__isnull=True)
    waiting = [row for row in rows.order_by("pk") if (row.machine_id, row.pk) in paths]
    return sum(_delivered(row, paths[row.machine_id, row.pk], now) for row in waiting)


def _delivered(row: Instruction, via: str, now: datetime) -> int:
    return Instruction.objects.filter(pk=row.pk, delivered_at__isnull=True).update(delivered_at=now, delivered_by=via)


def events_of_instructions(order_ids: Collection[uuid.UUID]) -> set[int]:
    """Return the row ids of the drills' events to which these instructions belong."""
    rows = ScheduledEvent.objects.filter(rehearsed_as__rehearsals__instructions__in=order_ids)
    return set(rows.values_list("pk", flat=True))


def _take_answer(*, machine_id: int, order_id: uuid.UUID, data: wire.ReceiptData, now: datetime) -> bool:
    """Process a receipt, if it is for an instruction to this machine. Return whether it was."""
    rows = Instruction.objects.select_related("rehearsal__drill__event", "machine")
    if (row := rows.filter(pk=order_id, machine_id=machine_id).first()) is None:
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
    drilled = _waiting_instructions(machine_ids)
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
        event__status=states.EventStatus.SCHEDULED.value,
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
    approvals = list({order.approval_id: order.approval for order in orders}.values())
    facts = load_facts([approval.event_id for approval in approvals], now=now)
    decisions = load_decisions(approvals, facts, now=now)
    sent = {one.pk for one in approvals if recheck(decisions[one.pk], facts[one.event_id], now=now) is None}
    return [order for order in orders if order.approval_id in sent]


# The paths by which an order reaches its machine, as agents and the wire call them.
PATHS = ("celery", "beat", "ticker", "look", "report")


Receipt = AgentReport[wire.ReceiptData]
Held = tuple[int, uuid.UUID, str]


@dataclass(frozen=True, slots=True)
class Noted:
    """Result of `note_held`: how many orders changed state, and which were skipped and must be tried again."""

    moved: int
    passed_by: tuple[Held, ...] = ()


def order_id_of(text: str) -> uuid.UUID | None:
    """Return the id of an order from an agent's text; None if it is not a valid id."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def events_of(receipts: Collection[Receipt]) -> set[int]:
    """Return the row ids of the events whose orders these receipts answer."""
    if not (ids := [order_id for receipt in receipts if (order_id := order_id_of(receipt.data.order_id))]):
        return set()
    asked = set(Approval.objects.filter(orders__in=ids).values_list("event_id", flat=True))
    return asked | events_of_instructions(ids)


@transaction.atomic
def note_held(*, held: Sequence[Held], now: datetime) -> Noted:
    """Mark offered orders as DELIVERED, because their machine has them. `held` are (machine row id, order id, via).

    Orders are skipped while another transaction locks their event, approval or order.
    """
    by_id = {order_id: (machine_id, via if via in PATHS else "") for machine_id, order_id, via in held}
    offered = Order.objects.filter(pk__in=by_id, state=OrderState.OFFERED.value, machine__revoked_at__isnull=True)
    waiting = [order for order in offered.select_related("approval") if by_id[order.pk][0] == order.machine_id]
    drilled = _note_instructions(held=held, now=now) if len(waiting) < len(held) else 0
    if not waiting:
        return Noted(drilled)
    free = {event.pk for event in compute.lock((order.approval.event_id for order in waiting), pass_by=True)}

    passed_by = {order.pk for order in waiting if order.approval.event_id not in free}
    deliver = partial(_deliver, vias={order_id: via for order_id, (_, via) in by_id.items()}, now=now)
    chosen = [order.pk for order in waiting if order.pk not in passed_by]
    delivered = bisect_failures(chosen, deliver, lambda pk, _: passed_by.add(pk), splits=is_timeout) if chosen else []
    return Noted(drilled + len(delivered), tuple(one for one in held if one[1] in passed_by))


def _deliver(order_ids: Sequence[uuid.UUID], vias: Mapping[uuid.UUID, str], now: datetime) -> list[Order]:
    # Read with their events locked, and again where an earlier try was rolled back.
    orders = list(LOADED.filter(pk__in=order_ids, state=OrderState.OFFERED.value).order_by("approval_id"))
    was = [order.state for order in orders]
    for order in orders:
        order.state, order.delivered_at, order.delivered_by = OrderState.DELIVERED.value, now, vias[order.pk]
    moved = driver.update(orders, ["state", "delivered_at", "delivered_by"], read={"state": was})
    found = [order for order in orders if order.pk in moved]
    move_all(Move(order.approval, ApprovalState.RELAYING) for order in found)
    for order in found:
        _tell(EntryKind.ORDER_DELIVERED, order, now, path=order.delivered_by)
    return found


def _tell(kind: EntryKind, order: Order, now: datetime, **data: Any) -> None:
    tell_order(kind, machine_actor(order.machine.resource_name), order, now=now, **data)


def take(receipts: Sequence[Receipt], *, now: datetime) -> None:
    """Process receipts. The caller has locked the events of their orders."""
    known = _orders_of(receipts)
    answers = [
        (order, receipt.data)
        for receipt in receipts
        if (order := known.get((receipt.machine_id, order_id_of(receipt.data.order_id)))) is not None
    ]
    _take_all(answers, now)
    for receipt in receipts:
        order_id = order_id_of(receipt.data.order_id)
        if (receipt.machine_id, order_id) in known:
            continue
        of_machine = {"machine_id": receipt.machine_id}
        order = LOADED.filter(pk=order_id, **of_machine).first() if order_id else None
        if order is not None:
            _take_all([(order, receipt.data)], now)
        elif order_id is None or not _take_answer(order_id=order_id, data=receipt.data, now=now, **of_machine):
            # The machine's name is not looked up for what leads nowhere.
            tell(EntryKind.LATE_RECEIPT, machine_actor(""), at=now, order=receipt.data.order_id, **of_machine)


LOADED = Order.objects.select_related("approval__event", "machine").defer("machine__compute")


def _orders_of(receipts: Sequence[Receipt]) -> dict[tuple[int, uuid.UUID | None], Order]:
    """Return the orders that these receipts answer and that can be processed together, by (machine row id, order id).

    Omitted are orders for which one receipt may affect the next: several of one approval, or several receipts for one
    order.
    """
    named = Counter(order_id_of(receipt.data.order_id) for receipt in receipts)
    rows = list(LOADED.filter(pk__in=[order_id for order_id in named if order_id is not None]))
    asked = Counter(order.approval_id for order in rows)
    once = [order for order in rows if named[order.pk] == asked[order.approval_id] == 1]
    return {(order.machine_id, order.pk): order for order in once}


Answer = tuple[Order, wire.ReceiptData]
# Columns of an order that a receipt changes.
ANSWERED = (
    "state", "closed_at", "delivered_at", "delivered_by", "answered_at", "outcome", "azure_status", "azure_body",
    "posts", "retry_after_seconds", "reason",
)  # fmt: skip


def _take_all(answers: Sequence[Answer], now: datetime) -> None:
    """Record the answers to these orders, each of a different approval, with one statement for each table."""
    answers = [(order, data) for order, data in answers if order.answered_at is None]
    was = [order.state for order, _ in answers]
    open_before = {order.pk for order, _ in answers if order.state in OPEN_ORDERS}
    early = {order.pk for order, _ in answers if order.state == OrderState.OFFERED}
    for order, data in answers:
        _answer(order, data, now)
    orders = [order for order, _ in answers]
    moved = driver.update(orders, ANSWERED, read={"state": was, "answered_at": [None] * len(was)})
    if len(moved) < len(orders):
        # Another writer moved an order whose event is locked, which no code does. Azure's answer is still recorded.
        left = {order.pk: data for order, data in answers if order.pk not in moved}
        for order in LOADED.filter(pk__in=left):
            _take_all([(order, left[order.pk])], now)
    orders = [order for order in orders if order.pk in moved]
    move_all(
        Move(order.approval, ApprovalState.RELAYING)
        for order in orders
        if order.pk in early and order.approval.state == ApprovalState.GRANTED
    )
    for order in orders:
        if order.pk in early:
            _tell(EntryKind.ORDER_DELIVERED, order, now, path=order.delivered_by)
        said = {name: getattr(order, name) for name in ("azure_status", "outcome", "reason")}
        _tell(EntryKind.ORDER_ANSWERED if order.pk in open_before else EntryKind.LATE_RECEIPT, order, now, **said)
    _accept_all(
        [order for order in orders if order.outcome == wire.ANSWERED and order.azure_status == 200], open_before, now
    )


def _answer(order: Order, data: wire.ReceiptData, now: datetime) -> None:
    if order.state == OrderState.OFFERED:
        # The receipt was faster than the news that the order is there.
        order.delivered_at, order.delivered_by = now, data.via if data.via in PATHS else ""
    if order.state in OPEN_ORDERS:
        order.state, order.closed_at = OrderState.ANSWERED.value, now
    order.answered_at, order.outcome, order.azure_status = now, data.outcome, data.azure_status
    order.azure_body = data.azure_body[:2000].replace("\x00", "")
    order.posts, order.retry_after_seconds = data.posts, data.retry_after
    order.reason = data.reason[:500].replace("\x00", "")


def _accept_all(orders: Sequence[Order], open_before: Collection[uuid.UUID], now: datetime) -> None:
    """Record that Azure accepted these orders. An approval that was closed without this answer is corrected to
    ACCEPTED.

    `advance_events` then concludes again from its event's later changes.
    """
    correctable = [order.approval for order in orders if order.approval.state in states.CORRECTABLE_APPROVALS]
    closed = {approval.pk: approval.state for approval in correctable}
    decided_again: set[int] = set()
    if correctable:
        # Those whose event has a newer open approval.
        live = Approval.objects.filter(
            state__in=states.LIVE_APPROVALS, event_id__any=[one.event_id for one in correctable]
        )
        events = set(live.values_list("event_id", flat=True))
        decided_again = {one.pk for one in correctable if one.event_id in events}
    reopened = {"closed_at": None, "reason": "", "inferred": False, "returned": False}
    moved = move_all(
        Move(order.approval, ApprovalState.ACCEPTED, proof | (reopened if order.approval_id in closed else {}))
        for order in orders
        if order.approval_id not in decided_again
        for proof in [{"accepted_at": now, "accepted_by_id": order.machine_id}]
    )
    for order in orders:
        if order.approval_id not in moved:
            _keep_proof(order, now)
            continue
        if order.pk not in open_before:
            # Another machine was asked in the meantime: one answer of Azure is enough.
            reason = Reason("azure-has-accepted", machine=order.machine.resource_name)
            end_open_order(order.approval, OrderState.CANCELLED, now=now, reason=reason)
        if order.approval_id in closed:
            _tell(EntryKind.APPROVAL_CORRECTED, order, now, was=closed[order.approval_id])
        else:
            _tell(EntryKind.APPROVAL_ACCEPTED, order, now)


def _keep_proof(order: Order, now: datetime) -> None:
    """Record that Azure accepted an approval whose state does not change.

    Either the approval was confirmed by inference and is now certain, or the event was approved again later.
    """
    row = Approval.objects.filter(pk=order.approval_id, accepted_at__isnull=True)
    proof = {"accepted_at": now, "accepted_by": order.machine}
    certain = {"inferred": False, "reason": stored_text(Reason("started-after-azure-accepted"))}
    if not row.filter(state=ApprovalState.CONFIRMED.value).update(**proof, **certain):
        row.filter(state__in=states.CORRECTABLE_APPROVALS).update(**proof)
