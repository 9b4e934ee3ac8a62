"""Sends approvals to Azure step by step. The rows are the queue; tasks and wake-ups only make it faster.

Locks are taken in one order: events, then approvals, then orders. Each state change of an approval or order is a
conditional UPDATE with a timeline entry, so that only one succeeds.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from fleet.domain import states
from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.approvals.conditions import Decision, recheck
from fleet.domain.approvals.guards import EventFacts, MachineFacts
from fleet.domain.clock import AHEAD
from fleet.domain.orders.next_step import NOTHING, Do, NextStep, OrderFacts, Relay
from fleet.domain.reasons import Reason, stored_text
from fleet.domain.states import ApprovalState, OrderState
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Order, ScheduledEvent, driver
from fleet.models.facts.decisions import load_decisions, orders_of
from fleet.models.facts.events import load_facts, order_timeouts
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.timeline.entries import gathered, tell

CLOSED_KINDS = {
    ApprovalState.CONFIRMED: EntryKind.APPROVAL_CONFIRMED,
    ApprovalState.VOID: EntryKind.APPROVAL_VOID,
    ApprovalState.LAPSED: EntryKind.APPROVAL_LAPSED,
    ApprovalState.REFUSED: EntryKind.APPROVAL_REFUSED,
    ApprovalState.WITHDRAWN: EntryKind.APPROVAL_WITHDRAWN,
}


def move(approval: Approval, target: ApprovalState, **columns: object) -> bool:
    """Change the state of an approval with one conditional UPDATE. Return False if its state had already changed."""
    sources = states.approval_sources(target)
    moved = Approval.objects.filter(pk=approval.pk, state__in=sources).update(state=target.value, **columns)
    if moved:
        approval.state = target.value
    return bool(moved)


@dataclass(frozen=True, slots=True)
class Move:
    """A state change of an approval that was loaded with its event locked. `columns` are further columns to write."""

    approval: Approval
    target: ApprovalState
    columns: Mapping[str, Any] = field(default_factory=dict)


def move_all(moves: Iterable[Move]) -> set[int]:
    """Change the states of several approvals with one statement. Return the row ids of those that changed.

    An approval whose state has changed since it was loaded is tried separately.
    """
    legal = [one for one in moves if one.approval.state in states.approval_sources(one.target)]
    was = [one.approval.state for one in legal]
    for one in legal:
        for name, value in one.columns.items():
            setattr(one.approval, name, value)
        one.approval.state = one.target.value
    names = {name: None for one in legal for name in one.columns}
    approvals = [one.approval for one in legal]
    moved = driver.update(approvals, ["state", *names], read={"state": was})
    left = [one for one in legal if one.approval.pk not in moved]
    return moved | {one.approval.pk for one in left if move(one.approval, one.target, **one.columns)}


@dataclass(frozen=True, slots=True)
class Closing:
    """How to close an approval. `asking` is False if it is known that it has no open order, with the event locked."""

    approval: Approval
    target: ApprovalState
    facts: EventFacts
    reason: Reason | str
    inferred: bool = False
    asking: bool = True
    returned: bool = False


def close(
    approval: Approval, target: ApprovalState, actor: Actor, *, facts: EventFacts, now: datetime, reason: Reason | str
) -> bool:
    """Close an approval and its open order, and record it. Return False if it was already closed."""
    return bool(close_all([Closing(approval, target, facts, reason)], actor, now=now))


def give_back(approval: Approval, *, facts: EventFacts, now: datetime, reason: Reason | str) -> bool:
    """Withdraw a waiting approval whose decision is no longer valid, so that users or rules decide again.

    Return False if it had already ended.
    """
    ending = Closing(approval, ApprovalState.WITHDRAWN, facts, reason, returned=True)
    return bool(close_all([ending], DRYDOCK, now=now))


def close_all(endings: Sequence[Closing], actor: Actor, *, now: datetime) -> set[int]:
    """Close several approvals that were loaded with their events locked. Return the row ids of those that were open."""
    was = {one.approval.pk: one.approval.state for one in endings}
    moves = []
    for one in endings:
        closed = {"closed_at": now, "reason": stored_text(one.reason)}
        moves.append(Move(one.approval, one.target, closed | {"inferred": one.inferred, "returned": one.returned}))
    moved = move_all(moves)
    for one in (one for one in endings if one.approval.pk in moved):
        if one.asking:
            ending = OrderState.EXPIRED if one.target is ApprovalState.LAPSED else OrderState.CANCELLED
            end_open_order(one.approval, ending, now=now, reason=one.reason)
        said: dict[str, Any] = {"was": was[one.approval.pk], "inferred": one.inferred, "reason": one.reason}
        tell_approval(CLOSED_KINDS[one.target], actor, one.approval, one.facts, now=now, **said)
    return moved


def tell_approval(
    kind: EntryKind,
    actor: Actor,
    approval: Approval,
    facts: EventFacts,
    *,
    was: str | None,
    now: datetime,
    after: dict[str, Any] | None = None,
    **data: Any,
) -> None:
    """Write a timeline entry about the new state of an approval. `after` are further values of the entry."""
    tell(
        kind,
        actor,
        at=now,
        event_id=approval.event_id,
        set_id=facts.set_id,
        approval_id=approval.pk,
        trace=approval.trace,
        before={"approval": was},
        after={"approval": approval.state} | (after or {}),
        **data,
    )


ENDED_ORDERS = {
    OrderState.SUPERSEDED: EntryKind.ORDER_SUPERSEDED,
    OrderState.EXPIRED: EntryKind.ORDER_EXPIRED,
    OrderState.CANCELLED: EntryKind.ORDER_CANCELLED,
}


def end_open_order(approval: Approval, ending: OrderState, *, now: datetime, reason: Reason | str) -> None:
    """Change the open order of an approval, if it has one, to SUPERSEDED, EXPIRED or CANCELLED."""
    rows = Order.objects.filter(approval=approval, state__in=states.order_sources(ending))
    for order in rows.select_related("approval__event", "machine").defer("machine__compute"):
        moved = Order.objects.filter(pk=order.pk, state__in=states.order_sources(ending)).update(
            state=ending.value, closed_at=now, reason=stored_text(reason)
        )
        if moved:
            tell_order(ENDED_ORDERS[ending], DRYDOCK, order, now=now, reason=reason)


def tell_order(kind: EntryKind, actor: Actor, order: Order, *, now: datetime, **data: Any) -> None:
    """Write a timeline entry about an order, which must be loaded with machine and the approval's event."""
    tell(
        kind,
        actor,
        at=now,
        event_id=order.approval.event_id,
        set_id=order.approval.event.availability_set_id,
        machine_id=order.machine_id,
        approval_id=order.approval_id,
        trace=order.approval.trace,
        order=str(order.pk),
        machine=order.machine.resource_name,
        **data,
    )


CLOSING = {
    Do.CONFIRM: ApprovalState.CONFIRMED,
    Do.VOID: ApprovalState.VOID,
    Do.LAPSE: ApprovalState.LAPSED,
    Do.REFUSE: ApprovalState.REFUSED,
    Do.RETURN: ApprovalState.WITHDRAWN,
}
# Machines are asked to answer, or the approval continues with those that were asked.
ASKING = (Do.OFFER, Do.WAKE, Do.NOTHING)


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
    rows = Approval.objects.filter(state__in=states.RELAYED_APPROVALS)
    if event_pks is not None:
        # Azure had accepted it, and a late document may show that the event did start.
        correctable = Q(state__in=states.CORRECTABLE_APPROVALS, accepted_at__isnull=False)
        which = Q(state__in=states.RELAYED_APPROVALS) | correctable
        rows = Approval.objects.filter(which, event_id__any=event_pks)
    # One that is under way comes after those that are over.
    approvals = {approval.event_id: approval for approval in rows.order_by("pk")}
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
        new = {one.order_id for one in orders if one.state is OrderState.OFFERED and one.delivered_at is None}
        offered = [replace(one, offered_at=max(one.offered_at, now)) if one.order_id in new else one for one in orders]
        relay = replace(relay, orders=offered)
        found = relay.next_step()
    if approval.state in states.RELAYED_APPROVALS and (objection := recheck(decision, facts, now=now)) is not None:
        found = relay.with_objection(found, objection)
    # While all approvals are stopped, no machine is offered an order; what has happened is still concluded.
    return NOTHING if facts.stop is not None and found.do in (Do.OFFER, Do.WAKE) else found


def advance_events(events: Sequence[ScheduledEvent], *, now: datetime, via: str) -> set[int]:
    """Perform the next step of each approval of these locked events. Return the machines (row ids) to wake after the
    commit.
    """
    woken: set[int] = set()
    endings: list[Closing] = []
    found = list(steps([event.pk for event in events], now).values())
    granted = [underway for underway in found if underway.approval.state == ApprovalState.GRANTED.value]
    if first := [underway.approval for underway in granted if underway.step.do in ASKING]:
        move_all(Move(approval, ApprovalState.RELAYING) for approval in first)
        # The machine's time to answer does not include the time in which its order was not visible yet: one that was
        # noted longer ago than this when the relay first sees it counts from now on.
        rows = Order.objects.filter(approval__in=first, state=OrderState.OFFERED.value)
        rows.filter(offered_at__lt=now - timedelta(seconds=1)).update(offered_at=now)
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
    open_events = ScheduledEvent.objects.filter(availability_set__in=set_ids, status__in=states.OPEN_EVENTS)
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
    is_open = Order.objects.filter(state__in=states.OPEN_ORDERS)
    is_open.filter(offered_at__gt=now + AHEAD).update(offered_at=now)
