"""What agents say of orders: that they have them, and what Azure answered to `StartRequests`."""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.patience import met_a_limit
from fleet.domain.reason import Reason
from fleet.domain.states import OPEN_ORDERS, ApprovalState, OrderState, order_sources
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Entry, Order
from fleet.operations.aside import in_parts
from fleet.operations.events import compute
from fleet.operations.intake.keep import AgentReport
from fleet.operations.orders import instructions
from fleet.operations.orders.states import end_open_order, move, tell_order
from fleet.operations.timeline.entries import entry

# The paths by which an order reaches its machine, as agents and the wire call them.
PATHS = ("celery", "beat", "ticker", "look", "report")


Receipt = AgentReport[wire.ReceiptData]
Held = tuple[int, uuid.UUID, str]


@dataclass(frozen=True, slots=True)
class Noted:
    """How many orders moved, and which were passed by and are to be noted again."""

    moved: int
    passed_by: tuple[Held, ...] = ()


def order_id_of(text: str) -> uuid.UUID | None:
    """The id of an order as agents spell it; None when it is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def events_of(receipts: Collection[Receipt]) -> set[int]:
    """The row ids of the events whose orders these receipts answer."""
    ids = [order_id for order_id in (order_id_of(receipt.data.order_id) for receipt in receipts) if order_id]
    if not ids:
        return set()
    asked = set(Approval.objects.filter(orders__in=ids).values_list("event_id", flat=True))
    return asked | instructions.events_of(ids)


@transaction.atomic
def note_held(*, held: Sequence[Held], now: datetime) -> Noted:
    """(machine row id, order id, via): offered orders that their machine has are DELIVERED. Where somebody holds the
    event, the approval or the order, they are passed by.
    """
    by_id = {order_id: (machine_id, via if via in PATHS else "") for machine_id, order_id, via in held}
    offered = Order.objects.filter(pk__in=by_id, state=OrderState.OFFERED.value, machine__revoked_at__isnull=True)
    waiting = [order for order in offered.select_related("approval") if by_id[order.pk][0] == order.machine_id]
    drilled = instructions.note_held(held=held, now=now) if len(waiting) < len(held) else 0
    if not waiting:
        return Noted(drilled)
    free = {event.pk for event in compute.lock((order.approval.event_id for order in waiting), pass_by=True)}

    passed_by = {order.pk for order in waiting if order.approval.event_id not in free}

    def deliver(orders: Sequence[Order]) -> list[bool]:
        return [_delivered(order, via=by_id[order.pk][1], now=now) for order in orders]

    def fail(order: Order, _: Exception) -> None:
        passed_by.add(order.pk)

    chosen = [order for order in waiting if order.pk not in passed_by]
    moved = sum(in_parts(chosen, deliver, fail, splits=met_a_limit)) if chosen else 0
    return Noted(drilled + moved, tuple(one for one in held if one[1] in passed_by))


def _delivered(order: Order, *, via: str, now: datetime) -> bool:
    moved = Order.objects.filter(pk=order.pk, state__in=order_sources(OrderState.DELIVERED)).update(
        state=OrderState.DELIVERED.value, delivered_at=now, delivered_by=via
    )
    if not moved:
        return False
    move(order.approval, ApprovalState.RELAYING)
    _tell(EntryKind.ORDER_DELIVERED, order, now, path=via)
    return True


def _tell(kind: EntryKind, order: Order, now: datetime, **data: Any) -> None:
    tell_order(kind, machine_actor(order.machine.resource_name), order, now=now, **data)


def take(receipts: Sequence[Receipt], *, now: datetime) -> list[Entry]:
    """Take receipts; the events of their orders are locked by the caller. Returns entries for receipts of unknown
    orders.
    """
    strange: list[Entry] = []
    for receipt in receipts:
        order_id = order_id_of(receipt.data.order_id)
        order = (
            Order.objects.select_related("approval__event", "machine")
            .filter(pk=order_id, machine_id=receipt.machine_id)
            .first()
            if order_id
            else None
        )
        if order is None and order_id is not None:
            drilled, lines = instructions.answered(
                machine_id=receipt.machine_id, order_id=order_id, data=receipt.data, now=now
            )
            strange += lines
            if drilled:
                continue
        if order is None:
            # The machine's name is not looked up for what leads nowhere.
            strange.append(
                entry(
                    EntryKind.LATE_RECEIPT,
                    machine_actor(""),
                    at=now,
                    machine_id=receipt.machine_id,
                    order=receipt.data.order_id,
                )
            )
        elif order.answered_at is None:
            _take_one(order, receipt.data, now)
    return strange


def _take_one(order: Order, data: wire.ReceiptData, now: datetime) -> None:
    was_open = order.state in [state.value for state in OPEN_ORDERS]
    if order.state == OrderState.OFFERED.value:
        # The receipt was faster than the news that the order is there.
        _delivered(order, via=data.via if data.via in PATHS else "", now=now)
    answer = {
        "answered_at": now,
        "outcome": data.outcome,
        "azure_status": data.azure_status,
        "azure_body": data.azure_body[:2000].replace("\x00", ""),
        "posts": data.posts,
        "retry_after_seconds": data.retry_after,
        "reason": data.reason[:500].replace("\x00", ""),
    }
    if was_open:
        sources = order_sources(OrderState.ANSWERED)
        Order.objects.filter(pk=order.pk, state__in=sources).update(
            state=OrderState.ANSWERED.value, closed_at=now, **answer
        )
    else:
        Order.objects.filter(pk=order.pk, answered_at__isnull=True).update(**answer)
    kind = EntryKind.ORDER_ANSWERED if was_open else EntryKind.LATE_RECEIPT
    said = {name: answer[name] for name in ("azure_status", "outcome", "reason")}
    _tell(kind, order, now, **said)
    if data.outcome == wire.ANSWERED and data.azure_status == 200:
        _accepted(order, now)


def _accepted(order: Order, now: datetime) -> None:
    approval = order.approval
    if move(approval, ApprovalState.ACCEPTED, accepted_at=now, accepted_by=order.machine):
        # Another machine may have been asked in the meantime: one answer of Azure is enough.
        end_open_order(
            approval,
            OrderState.CANCELLED,
            now=now,
            reason=Reason("azure-has-accepted", machine=order.machine.resource_name),
        )
        _tell(EntryKind.APPROVAL_ACCEPTED, order, now)
    else:
        # It was concluded before that Azure had taken it; now there is proof of it.
        Approval.objects.filter(pk=approval.pk, state=ApprovalState.CONFIRMED.value, accepted_at__isnull=True).update(
            accepted_at=now, accepted_by=order.machine
        )
