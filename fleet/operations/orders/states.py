"""State changes of approvals and orders: each is a conditional UPDATE with a timeline entry, so that only one
succeeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.reasons import Reason, stored_text
from fleet.domain.states import ApprovalState, OrderState, approval_sources, order_sources
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Order, driver
from fleet.operations.timeline.entries import tell

CLOSED_KINDS = {
    ApprovalState.CONFIRMED: EntryKind.APPROVAL_CONFIRMED,
    ApprovalState.VOID: EntryKind.APPROVAL_VOID,
    ApprovalState.LAPSED: EntryKind.APPROVAL_LAPSED,
    ApprovalState.REFUSED: EntryKind.APPROVAL_REFUSED,
    ApprovalState.WITHDRAWN: EntryKind.APPROVAL_WITHDRAWN,
}


def move(approval: Approval, target: ApprovalState, **columns: object) -> bool:
    """Change the state of an approval with one conditional UPDATE. Return False if its state had already changed."""
    sources = approval_sources(target)
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
    legal = [one for one in moves if one.approval.state in approval_sources(one.target)]
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
    was = approval.state
    if not move(approval, target, closed_at=now, reason=stored_text(reason), inferred=False):
        return False
    _tell_ending(Closing(approval, target, facts, reason), was, actor, now)
    return True


def give_back(approval: Approval, *, facts: EventFacts, now: datetime, reason: Reason | str) -> bool:
    """Withdraw a waiting approval whose decision is no longer valid, so that users or rules decide again.

    Return False if it had already ended.
    """
    ending = Closing(approval, ApprovalState.WITHDRAWN, facts, reason, returned=True)
    return approval.pk in close_all([ending], DRYDOCK, now=now)


def close_all(endings: Sequence[Closing], actor: Actor, *, now: datetime) -> set[int]:
    """Close several approvals that were loaded with their events locked. Return the row ids of those that were open."""
    was = {one.approval.pk: one.approval.state for one in endings}
    moved = move_all(
        Move(
            one.approval,
            one.target,
            {
                "closed_at": now,
                "reason": stored_text(one.reason),
                "inferred": one.inferred,
                "returned": one.returned,
            },
        )
        for one in endings
    )
    for one in endings:
        if one.approval.pk in moved:
            _tell_ending(one, was[one.approval.pk], actor, now)
    return moved


def _tell_ending(one: Closing, was: str, actor: Actor, now: datetime) -> None:
    if one.asking:
        ending = OrderState.EXPIRED if one.target is ApprovalState.LAPSED else OrderState.CANCELLED
        end_open_order(one.approval, ending, now=now, reason=one.reason)
    tell_approval(
        CLOSED_KINDS[one.target], actor, one.approval, one.facts,
        was=was, now=now, inferred=one.inferred, reason=one.reason,
    )  # fmt: skip


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
    rows = Order.objects.filter(approval=approval, state__in=order_sources(ending))
    for order in rows.select_related("approval__event", "machine").defer("machine__compute"):
        moved = Order.objects.filter(pk=order.pk, state__in=order_sources(ending)).update(
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
