"""Relaying: an approval's way to Azure, one step at a time. The rows are the queue; tasks and bells only make it fast.

Locks are taken in one order: events, then approvals, then orders.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import transaction
from django.utils import timezone
from drydock_agent import wire

from fleet.domain.approvals.guards import EventFacts, MachineFacts
from fleet.domain.orders.next_step import Do, NextStep, OrderFacts, next_step
from fleet.domain.reason import Reason, stored
from fleet.domain.states import (
    OPEN_ORDERS,
    RELAYED_APPROVALS,
    ApprovalState,
    OrderState,
    approval_sources,
    order_sources,
)
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts.events import load_facts, order_timeouts
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.orders import instructions, sign
from fleet.operations.timeline.entries import entry, write


def _relayed(events: Collection[int]) -> dict[int, Approval]:
    states = [state.value for state in RELAYED_APPROVALS]
    return {
        approval.event_id: approval
        for approval in Approval.objects.filter(event_id__in=events, state__in=states).order_by("pk")
    }


def _orders_of(approvals: Collection[int]) -> dict[int, list[OrderFacts]]:
    found: dict[int, list[OrderFacts]] = defaultdict(list)
    for order in Order.objects.filter(approval_id__in=approvals).order_by("offered_at", "id"):
        found[order.approval_id].append(
            OrderFacts(
                order_id=order.pk,
                machine_id=order.machine_id,
                state=OrderState(order.state),
                offered_at=order.offered_at,
                delivered_at=order.delivered_at,
                outcome=order.outcome,
                azure_status=order.azure_status,
                reason=order.reason,
            )
        )
    return found


def steps(event_pks: Collection[int], now: datetime) -> dict[int, tuple[Approval, EventFacts, NextStep]]:
    """The next step of the relayed approval of each of these events (row ids) that has one. Up to seven queries."""
    approvals = _relayed(event_pks)
    if not approvals:
        return {}
    facts = load_facts(list(approvals), now=now)
    orders = _orders_of([approval.pk for approval in approvals.values()])
    return {
        event_pk: (
            approval,
            facts[event_pk],
            next_step(
                state=ApprovalState(approval.state),
                facts=facts[event_pk],
                orders=orders[approval.pk],
                now=now,
                timeouts=order_timeouts(),
            ),
        )
        for event_pk, approval in approvals.items()
    }


def advance_events(events: Sequence[ScheduledEvent], *, now: datetime, via: str) -> set[int]:
    """Carry out the next step of each approval of these locked events; the machines (row ids) to ring after the
    commit.
    """
    ring: set[int] = set()
    void: set[int] = set()
    for approval, facts, step in steps([event.pk for event in events], now).values():
        if approval.state == ApprovalState.GRANTED.value and step.do in (Do.OFFER, Do.WAKE, Do.NOTHING):
            move(approval, ApprovalState.RELAYING)
        if step.machine is not None:
            ring.add(step.machine.machine_id)
        if step.do is Do.OFFER and step.machine is not None:
            offer(approval, facts, step.machine, now=now, reason=step.reason)
        elif step.do in CLOSING:
            close(approval, CLOSING[step.do], facts=facts, now=now, reason=step.reason, inferred=step.inferred)
            if step.do is Do.VOID:
                void.add(approval.event_id)
    # Only now is it sure that an event which has started was approved elsewhere.
    compute.compute_state([event for event in events if event.pk in void], now=now)
    if ring:
        transaction.on_commit(lambda: wake_up.wake_machines(ring, via=via))
    return ring


CLOSING = {
    Do.CONFIRM: ApprovalState.CONFIRMED,
    Do.VOID: ApprovalState.VOID,
    Do.LAPSE: ApprovalState.LAPSED,
    Do.REFUSE: ApprovalState.REFUSED,
}

CLOSED_KINDS = {
    ApprovalState.CONFIRMED: EntryKind.APPROVAL_CONFIRMED,
    ApprovalState.VOID: EntryKind.APPROVAL_VOID,
    ApprovalState.LAPSED: EntryKind.APPROVAL_LAPSED,
    ApprovalState.REFUSED: EntryKind.APPROVAL_REFUSED,
    ApprovalState.WITHDRAWN: EntryKind.APPROVAL_WITHDRAWN,
}


def move(approval: Approval, target: ApprovalState, **columns: object) -> bool:
    """Enter a state by one conditional UPDATE; False when somebody was first."""
    sources = approval_sources(target)
    moved = Approval.objects.filter(pk=approval.pk, state__in=sources).update(state=target.value, **columns)
    if moved:
        approval.state = target.value
    return bool(moved)


def close(
    approval: Approval,
    target: ApprovalState,
    *,
    facts: EventFacts,
    now: datetime,
    reason: Reason | str,
    inferred: bool = False,
    actor: str = "Drydock",
    via: str = "relay",
    token_name: str = "",
    why: str = "",
) -> bool:
    """End an approval, its open order with it, and say so on the timeline; False when it had ended already."""
    was = approval.state
    if not move(approval, target, closed_at=now, reason=stored(reason), inferred=inferred):
        return False
    ending = OrderState.EXPIRED if target is ApprovalState.LAPSED else OrderState.CANCELLED
    end_open_order(approval, ending, set_id=facts.set_id, now=now, reason=reason)
    write(
        [
            entry(
                CLOSED_KINDS[target],
                at=now,
                event_id=approval.event_id,
                set_id=facts.set_id,
                approval_id=approval.pk,
                actor=actor,
                via=via,
                token_name=token_name,
                why=why,
                before={"approval": was},
                after={"approval": target.value},
                inferred=inferred,
                reason=reason,
            )
        ]
    )
    return True


ENDED_ORDERS = {
    OrderState.SUPERSEDED: EntryKind.ORDER_SUPERSEDED,
    OrderState.EXPIRED: EntryKind.ORDER_EXPIRED,
    OrderState.CANCELLED: EntryKind.ORDER_CANCELLED,
}


def end_open_order(approval: Approval, ending: OrderState, *, set_id: int, now: datetime, reason: Reason | str) -> None:
    """Move the open order of an approval, if there is one, to SUPERSEDED, EXPIRED or CANCELLED."""
    for order in Order.objects.filter(approval=approval, state__in=order_sources(ending)).select_related("machine"):
        moved = Order.objects.filter(pk=order.pk, state__in=order_sources(ending)).update(
            state=ending.value, closed_at=now, reason=stored(reason)
        )
        if moved:
            write(
                [
                    entry(
                        ENDED_ORDERS[ending],
                        at=now,
                        event_id=approval.event_id,
                        set_id=set_id,
                        machine_id=order.machine_id,
                        approval_id=approval.pk,
                        actor="Drydock",
                        via="relay",
                        order=str(order.pk),
                        machine=order.machine.resource_name,
                        reason=reason,
                    )
                ]
            )


def offer(
    approval: Approval, facts: EventFacts, machine: MachineFacts, *, now: datetime, reason: Reason | str = ""
) -> Order:
    """Write an order for this machine; an order still open is superseded in the same transaction."""
    end_open_order(approval, OrderState.SUPERSEDED, set_id=facts.set_id, now=now, reason=reason)
    order = Order.objects.create(
        id=uuid.uuid4(),
        approval=approval,
        machine_id=machine.machine_id,
        state=OrderState.OFFERED.value,
        spelled=machine.spelled or facts.event_id,
        offered_at=now,
        expires_at=facts.not_before,
    )
    write(
        [
            entry(
                EntryKind.ORDER_OFFERED,
                at=now,
                event_id=approval.event_id,
                set_id=facts.set_id,
                machine_id=machine.machine_id,
                approval_id=approval.pk,
                actor="Drydock",
                via="relay",
                order=str(order.pk),
                machine=machine.name,
            )
        ]
    )
    return order


@transaction.atomic
def advance_approval(*, approval_id: int, now: datetime, via: str) -> set[int]:
    """Advance one approval now; the machines (row ids) that are rung."""
    event_pk = Approval.objects.filter(pk=approval_id).values_list("event_id", flat=True).first()
    if event_pk is None:
        return set()
    return advance_events(compute.lock([event_pk]), now=now, via=via)


def waiting_orders(*, machine_ids: Collection[int] | None = None) -> dict[int, list[wire.Order]]:
    """Open orders by machine (row ids), signed, for these machines or for all, and what drills ask of them.

    `via` is left to who delivers.
    """
    rows = Order.objects.filter(state__in=[state.value for state in OPEN_ORDERS])
    rows = rows.select_related("machine", "approval__event")
    if machine_ids is not None:
        rows = rows.filter(machine_id__any=machine_ids)
    waiting = list(rows.defer("machine__compute").order_by("offered_at", "id"))
    orders = [
        wire.Order(
            id=str(order.pk),
            machine_id=order.machine.vm_id,
            event_id=order.spelled,
            issued_at=order.offered_at,
            expires_at=order.expires_at,
            drill={"step": instructions.APPROVE} if order.approval.event.drill else None,
        )
        for order in waiting
    ]
    drilled = instructions.waiting(machine_ids=machine_ids)
    whose = [order.machine_id for order in waiting] + [machine_id for machine_id, _ in drilled]
    orders += [order for _, order in drilled]
    found: dict[int, list[wire.Order]] = defaultdict(list)
    for machine_id, signed in zip(whose, sign.signed(orders, now=timezone.now()), strict=True):
        found[machine_id].append(signed)
    return found
