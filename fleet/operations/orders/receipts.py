"""Agents' reports about orders: that they have received them, and what Azure answered to `StartRequests`."""

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.db_timeouts import is_timeout
from fleet.domain.reasons import Reason, stored_text
from fleet.domain.states import CORRECTABLE_APPROVALS, LIVE_APPROVALS, OPEN_ORDERS, ApprovalState, OrderState
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Order, driver
from fleet.operations.events import compute
from fleet.operations.intake.keep import AgentReport
from fleet.operations.orders import queue
from fleet.operations.orders.states import Move, end_open_order, move_all, tell_order
from fleet.operations.quarantine import bisect_failures
from fleet.operations.timeline.entries import tell

# The paths by which an order reaches its machine, as agents and the wire call them.
PATHS = ("celery", "beat", "ticker", "look", "report")


REOPENED = {"closed_at": None, "reason": "", "inferred": False, "returned": False}

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
    ids = [order_id for order_id in (order_id_of(receipt.data.order_id) for receipt in receipts) if order_id]
    if not ids:
        return set()
    asked = set(Approval.objects.filter(orders__in=ids).values_list("event_id", flat=True))
    return asked | queue.events_of(ids)


@transaction.atomic
def note_held(*, held: Sequence[Held], now: datetime) -> Noted:
    """Mark offered orders as DELIVERED, because their machine has them. `held` are (machine row id, order id, via).

    Orders are skipped while another transaction locks their event, approval or order.
    """
    by_id = {order_id: (machine_id, via if via in PATHS else "") for machine_id, order_id, via in held}
    offered = Order.objects.filter(pk__in=by_id, state=OrderState.OFFERED.value, machine__revoked_at__isnull=True)
    waiting = [order for order in offered.select_related("approval") if by_id[order.pk][0] == order.machine_id]
    drilled = queue.note_held(held=held, now=now) if len(waiting) < len(held) else 0
    if not waiting:
        return Noted(drilled)
    free = {event.pk for event in compute.lock((order.approval.event_id for order in waiting), pass_by=True)}

    passed_by = {order.pk for order in waiting if order.approval.event_id not in free}

    deliver = partial(_deliver, vias={order_id: via for order_id, (_, via) in by_id.items()}, now=now)

    def fail(order_id: uuid.UUID, _: Exception) -> None:
        passed_by.add(order_id)

    chosen = [order.pk for order in waiting if order.pk not in passed_by]
    moved = len(bisect_failures(chosen, deliver, fail, splits=is_timeout)) if chosen else 0
    return Noted(drilled + moved, tuple(one for one in held if one[1] in passed_by))


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
        elif order_id is None or not queue.take_answer(order_id=order_id, data=receipt.data, now=now, **of_machine):
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
    correctable = [order.approval for order in orders if order.approval.state in CORRECTABLE_APPROVALS]
    closed = {approval.pk: approval.state for approval in correctable}
    decided_again = _decided_again(correctable)
    moved = move_all(
        Move(
            order.approval,
            ApprovalState.ACCEPTED,
            {"accepted_at": now, "accepted_by_id": order.machine_id}
            | (REOPENED if order.approval_id in closed else {}),
        )
        for order in orders
        if order.approval_id not in decided_again
    )
    for order in orders:
        if order.approval_id not in moved:
            _keep_proof(order, now)
            continue
        if order.pk not in open_before:
            # Another machine was asked in the meantime: one answer of Azure is enough.
            reason = Reason("azure-has-accepted", machine=order.machine.resource_name)
            end_open_order(order.approval, OrderState.CANCELLED, now=now, reason=reason)
        if (was := closed.get(order.approval_id)) is not None:
            _tell(EntryKind.APPROVAL_CORRECTED, order, now, was=was)
        else:
            _tell(EntryKind.APPROVAL_ACCEPTED, order, now)


def _decided_again(approvals: Sequence[Approval]) -> set[int]:
    """Return those of these closed approvals (row ids) whose event has a newer open approval."""
    if not approvals:
        return set()
    live = Approval.objects.filter(state__in=LIVE_APPROVALS, event_id__any=[one.event_id for one in approvals])
    events = set(live.values_list("event_id", flat=True))
    return {one.pk for one in approvals if one.event_id in events}


def _keep_proof(order: Order, now: datetime) -> None:
    """Record that Azure accepted an approval whose state does not change.

    Either the approval was confirmed by inference and is now certain, or the event was approved again later.
    """
    row = Approval.objects.filter(pk=order.approval_id, accepted_at__isnull=True)
    proof = {"accepted_at": now, "accepted_by": order.machine}
    certain = {"inferred": False, "reason": stored_text(Reason("started-after-azure-accepted"))}
    if not row.filter(state=ApprovalState.CONFIRMED.value).update(**proof, **certain):
        row.filter(state__in=CORRECTABLE_APPROVALS).update(**proof)
