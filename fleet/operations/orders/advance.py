"""Sends approvals to Azure step by step. The rows are the queue; tasks and wake-ups only make it faster.

Locks are taken in one order: events, then approvals, then orders.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import DRYDOCK
from fleet.domain.approvals.conditions import Decision, recheck
from fleet.domain.approvals.guards import EventFacts, MachineFacts
from fleet.domain.clock import AHEAD
from fleet.domain.orders.next_step import NOTHING, Do, NextStep, OrderFacts, Relay
from fleet.domain.reasons import Reason
from fleet.domain.states import (
    CORRECTABLE_APPROVALS,
    OPEN_EVENTS,
    OPEN_ORDERS,
    RELAYED_APPROVALS,
    ApprovalState,
    OrderState,
)
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts.decisions import load_decisions, orders_of
from fleet.models.facts.events import load_facts, order_timeouts
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.orders.states import Closing, Move, close_all, end_open_order, move_all
from fleet.operations.timeline.entries import gathered, tell

CLOSING = {
    Do.CONFIRM: ApprovalState.CONFIRMED,
    Do.VOID: ApprovalState.VOID,
    Do.LAPSE: ApprovalState.LAPSED,
    Do.REFUSE: ApprovalState.REFUSED,
    Do.RETURN: ApprovalState.WITHDRAWN,
}
# Machines are asked to answer, or the approval continues with those that were asked.
ASKING = (Do.OFFER, Do.WAKE, Do.NOTHING)

# Of a decision; an order that was noted longer ago than this when the relay first sees it counts from then on.
SLOW_COMMIT = timedelta(seconds=1)

RELAYED = Q(state__in=RELAYED_APPROVALS)
# Azure had accepted it, and a late document may show that the event did start.
CORRECTABLE = Q(state__in=CORRECTABLE_APPROVALS, accepted_at__isnull=False)


def _relayed(event_pks: Collection[int] | None) -> dict[int, Approval]:
    rows = Approval.objects.filter(RELAYED)
    if event_pks is not None:
        rows = Approval.objects.filter(RELAYED | CORRECTABLE, event_id__any=event_pks)
    # One that is under way comes after those that are over.
    return {approval.event_id: approval for approval in rows.order_by("pk")}


@dataclass(frozen=True, slots=True)
class Underway:
    """An approval that is being sent, and the next step. `asking`: one of its orders is open."""

    approval: Approval
    facts: EventFacts
    step: NextStep
    asking: bool


def steps(event_pks: Collection[int] | None, now: datetime) -> dict[int, Underway]:
    """Return the next step of each approval that is being sent, for these events (row ids) or all. Runs a fixed number
    of queries.
    """
    approvals = _relayed(event_pks)
    if not approvals:
        return {}
    facts = load_facts(list(approvals), now=now)
    orders = orders_of([approval.pk for approval in approvals.values()])
    decisions = load_decisions(list(approvals.values()), facts, now=now)
    found = {}
    for event_pk, approval in approvals.items():
        mine = orders.get(approval.pk, [])
        step = _step(approval, facts[event_pk], decisions[approval.pk], mine, now)
        found[event_pk] = Underway(approval, facts[event_pk], step, asking=any(order.open for order in mine))
    return found


def _step(
    approval: Approval, facts: EventFacts, decision: Decision, orders: list[OrderFacts], now: datetime
) -> NextStep:
    relay = Relay(ApprovalState(approval.state), facts, orders, now, order_timeouts())
    found = relay.next_step()
    if relay.state is ApprovalState.GRANTED and found.do is Do.OFFER:
        # The relay sees it for the first time, so its order was committed just now, whenever its transaction began.
        offered = [replace(one, offered_at=max(one.offered_at, now)) if _is_new(one) else one for one in orders]
        relay = replace(relay, orders=offered)
        found = relay.next_step()
    if approval.state in RELAYED_APPROVALS and (objection := recheck(decision, facts, now=now)) is not None:
        found = relay.with_objection(found, objection)
    # While all approvals are stopped, no machine is offered an order; what has happened is still concluded.
    return NOTHING if facts.stop is not None and found.do in (Do.OFFER, Do.WAKE) else found


def _is_new(order: OrderFacts) -> bool:
    return order.state is OrderState.OFFERED and order.delivered_at is None


def _count_from_commit(approvals: Sequence[Approval], now: datetime) -> None:
    """Set the time of offer to now for first orders that were written before a slow commit.

    So the machine's time to answer does not include the time in which the order was not visible yet.
    """
    rows = Order.objects.filter(approval__in=approvals, state=OrderState.OFFERED.value)
    rows.filter(offered_at__lt=now - SLOW_COMMIT).update(offered_at=now)


def advance_events(events: Sequence[ScheduledEvent], *, now: datetime, via: str) -> set[int]:
    """Perform the next step of each approval of these locked events. Return the machines (row ids) to wake after the
    commit.
    """
    woken: set[int] = set()
    endings: list[Closing] = []
    found = list(steps([event.pk for event in events], now).values())
    first = [
        underway.approval
        for underway in found
        if underway.approval.state == ApprovalState.GRANTED.value and underway.step.do in ASKING
    ]
    if first:
        move_all(Move(approval, ApprovalState.RELAYING) for approval in first)
        _count_from_commit(first, now)
    for underway in found:
        approval, facts, step = underway.approval, underway.facts, underway.step
        if step.machine is not None:
            woken.add(step.machine.machine_id)
        if step.do is Do.OFFER and step.machine is not None:
            if underway.asking:
                end_open_order(approval, OrderState.SUPERSEDED, now=now, reason=step.reason)
            write_order(approval, facts, step.machine, now=now, reason=step.reason)
        elif step.do in CLOSING:
            target, returned = CLOSING[step.do], step.do is Do.RETURN
            endings.append(Closing(approval, target, facts, step.reason, step.inferred, underway.asking, returned))
    ended = close_all(endings, DRYDOCK, now=now)
    void = {one.approval.event_id for one in endings if one.target is ApprovalState.VOID and one.approval.pk in ended}
    # Only now is it sure that an event which has started was approved elsewhere.
    compute.compute_state([event for event in events if event.pk in void], now=now)
    if woken:
        transaction.on_commit(lambda: wake_up.wake_machines(woken, via=via))
    return woken


def recompute(event_pks: Iterable[int], *, now: datetime, via: str) -> None:
    """Lock these events (row ids), compute their state, and advance their approvals. Consequences follow after the
    commit.
    """
    events = compute.lock(event_pks)
    compute.compute_state(events, now=now)
    advance_events(events, now=now, via=via)
    transaction.on_commit(lambda: wake_up.hint_events([event.pk for event in events]))


def recompute_open(*set_ids: int, now: datetime, via: str) -> None:
    """Call `recompute` for the open events of these sets (row ids). Needed after the machines of the sets have
    changed.
    """
    open_events = ScheduledEvent.objects.filter(availability_set__in=set_ids, status__in=OPEN_EVENTS)
    recompute(open_events.values_list("pk", flat=True), now=now, via=via)


def write_order(
    approval: Approval, facts: EventFacts, machine: MachineFacts, *, now: datetime, reason: Reason | str = ""
) -> Order:
    """Write an order of an approval that has no open order, with its timeline entry."""
    order = Order.objects.create(
        id=uuid.uuid4(),
        approval=approval,
        machine_id=machine.machine_id,
        state=OrderState.OFFERED.value,
        spelled=machine.spelled or facts.event_id,
        offered_at=now,
        expires_at=facts.not_before,
    )
    tell(
        EntryKind.ORDER_OFFERED,
        DRYDOCK,
        at=now,
        event_id=approval.event_id,
        set_id=facts.set_id,
        machine_id=machine.machine_id,
        approval_id=approval.pk,
        trace=approval.trace,
        order=str(order.pk),
        machine=machine.name,
        reason=reason,
    )
    return order


def wake_asked(*approval_ids: int, via: str) -> None:
    """Wake the machines that have open orders of these approvals (row ids). Takes no lock on their events."""
    offered = Order.objects.filter(approval_id__in=approval_ids, state=OrderState.OFFERED.value)
    wake_up.wake_machines(list(offered.values_list("machine_id", flat=True)), via=via)


@gathered()
def advance_approval(*, approval_id: int, now: datetime, via: str) -> set[int]:
    """Advance one approval now. Return the machines (row ids) that were woken."""
    event_pk = Approval.objects.filter(pk=approval_id).values_list("event_id", flat=True).first()
    if event_pk is None:
        return set()
    return advance_events(compute.lock([event_pk]), now=now, via=via)


@gathered()
def advance_approvals(approval_ids: Collection[int], *, now: datetime, via: str) -> set[int]:
    """Advance several approvals (row ids), without those whose event another transaction has locked."""
    events = list(Approval.objects.filter(pk__in=approval_ids).values_list("event_id", flat=True))
    return advance_events(compute.lock(events, pass_by=True), now=now, via=via)


def repair(*, now: datetime) -> None:
    """Correct times of offer in the future, written by a wrong clock, so that these orders time out as others do."""
    is_open = Order.objects.filter(state__in=OPEN_ORDERS)
    is_open.filter(offered_at__gt=now + AHEAD).update(offered_at=now)
