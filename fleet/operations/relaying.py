"""Relaying: an approval's way to Azure, one step at a time. The rows are the queue; tasks and bells only make it fast.

Locks are taken in one order: events, then approvals, then orders.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.domain.guards import EventFacts, MachineFacts
from fleet.domain.relaying import Do, OrderFacts, Step, next_step
from fleet.domain.sightings import fold
from fleet.domain.states import (
    OPEN_ORDERS,
    RELAYED_APPROVALS,
    ApprovalState,
    EventStatus,
    OrderState,
    approval_sources,
    order_sources,
)
from fleet.models import Approval, Order, ScheduledEvent, Sighting, Sweep
from fleet.models.facts import load_facts, load_witnesses
from fleet.operations import bells, folding, redis
from fleet.operations.entries import entry, write

# Any number will do, as long as nothing else in this database uses it.
SWEEP_LOCK = 7_001_169
SWEEP = "relay"


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one sweep did: whether it ran at all, events folded anew, steps carried out, machines rung (row ids)."""

    ran: bool
    folded: int = 0
    steps: int = 0
    rung: tuple[int, ...] = ()


def patience() -> timedelta:
    """How long an order may stay unanswered before the next machine is asked."""
    return timedelta(seconds=settings.ORDER_ANSWER_SECONDS)


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
            )
        )
    return found


def _steps(event_pks: Collection[int], now: datetime) -> dict[int, tuple[Approval, EventFacts, Step]]:
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
                patience=patience(),
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
    for approval, facts, step in _steps([event.pk for event in events], now).values():
        if approval.state == ApprovalState.GRANTED.value and step.do in (Do.OFFER, Do.RING, Do.NOTHING):
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
    folding.refold([event for event in events if event.pk in void], now=now)
    if ring:
        transaction.on_commit(lambda: bells.ring_orders(ring, via=via))
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
    reason: str,
    inferred: bool = False,
    actor: str = "Drydock",
    via: str = "relay",
) -> bool:
    """End an approval, its open order with it, and say so on the timeline; False when it had ended already."""
    if not move(approval, target, closed_at=now, reason=reason, inferred=inferred):
        return False
    ending = OrderState.EXPIRED if target is ApprovalState.LAPSED else OrderState.CANCELLED
    end_open_order(approval, ending, set_id=facts.set_id, now=now, reason=reason)
    write(
        [
            entry(
                CLOSED_KINDS[target],
                reason,
                at=now,
                event_id=approval.event_id,
                set_id=facts.set_id,
                approval_id=approval.pk,
                actor=actor,
                via=via,
                inferred=inferred,
            )
        ]
    )
    return True


ENDED_ORDERS = {
    OrderState.SUPERSEDED: EntryKind.ORDER_SUPERSEDED,
    OrderState.EXPIRED: EntryKind.ORDER_EXPIRED,
    OrderState.CANCELLED: EntryKind.ORDER_CANCELLED,
}


def end_open_order(approval: Approval, ending: OrderState, *, set_id: int, now: datetime, reason: str) -> None:
    """Move the open order of an approval, if there is one, to SUPERSEDED, EXPIRED or CANCELLED."""
    for order in Order.objects.filter(approval=approval, state__in=order_sources(ending)).select_related("machine"):
        moved = Order.objects.filter(pk=order.pk, state__in=order_sources(ending)).update(
            state=ending.value, closed_at=now, reason=reason
        )
        if moved:
            write(
                [
                    entry(
                        ENDED_ORDERS[ending],
                        f"Order to {order.machine.resource_name} ended: {reason}",
                        at=now,
                        event_id=approval.event_id,
                        set_id=set_id,
                        machine_id=order.machine_id,
                        approval_id=approval.pk,
                        actor="Drydock",
                        via="relay",
                        order=str(order.pk),
                    )
                ]
            )


def offer(approval: Approval, facts: EventFacts, machine: MachineFacts, *, now: datetime, reason: str = "") -> Order:
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
                f"{machine.name} is asked to start the event at Azure.",
                at=now,
                event_id=approval.event_id,
                set_id=facts.set_id,
                machine_id=machine.machine_id,
                approval_id=approval.pk,
                actor="Drydock",
                via="relay",
                order=str(order.pk),
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
    return advance_events(folding.lock([event_pk]), now=now, via=via)


def advance(*, now: datetime, via: str) -> Advanced:
    """Advance whatever is due: fold what time has changed, ring, time out, ask the next machine, lapse.

    Looks without locks first and locks only what has a step to take. An advisory lock keeps two sweeps apart; the
    one that does not get it returns at once.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
            row = cursor.fetchone()
        if not row or not row[0]:
            return Advanced(ran=False)
        due = _due(now)
        rung: set[int] = set()
        folded = 0
        if due:
            events = folding.lock(due)
            folded = len(folding.refold(events, now=now))
            rung = advance_events(events, now=now, via=via)
        Sweep.objects.update_or_create(name=SWEEP, defaults={"ran_at": now, "via": via})
    # In a transaction of its own: approvals do not wait for it.
    with transaction.atomic():
        redis.sweep(now=now)
    return Advanced(ran=True, folded=folded, steps=len(due), rung=tuple(sorted(rung)))


def advance_if_quiet(*, now: datetime, quiet_seconds: float, via: str) -> Advanced:
    """Advance when nobody has for this long: the gateway's part when Celery is gone."""
    ran_at = Sweep.objects.filter(name=SWEEP).values_list("ran_at", flat=True).first()
    if ran_at is not None and (now - ran_at).total_seconds() < quiet_seconds:
        return Advanced(ran=False)
    return advance(now=now, via=via)


def _due(now: datetime) -> list[int]:
    states = [state.value for state in RELAYED_APPROVALS]
    approved = list(Approval.objects.filter(state__in=states).values_list("event_id", flat=True))
    due = {pk for pk, (_, _, step) in _steps(approved, now).items() if step.do is not Do.NOTHING}
    is_open = ~Q(status=EventStatus.ENDED.value)
    # Over, as it seemed while a machine was silent that is back and still lists it.
    back = Sighting.objects.filter(
        gone_at__isnull=True,
        foreign=False,
        machine__presence__last_heard_at__gt=now - timedelta(seconds=settings.LIVE_SECONDS),
    )
    events = list(ScheduledEvent.objects.filter(is_open | Q(pk__in=back.values("event_id"))))
    witnesses = load_witnesses(events, now=now)
    for event in events:
        folded = fold(witnesses[event.pk], now=now, was_ended=event.status == EventStatus.ENDED.value)
        if folded is not None and (folded.status.value, folded.watched) != (event.status, event.watched):
            due.add(event.pk)
    return sorted(due)


def waiting_orders(*, machine_ids: Collection[int] | None = None) -> dict[int, list[wire.Order]]:
    """Open orders by machine (row ids), for these machines or for all. `via` is left to who delivers."""
    rows = Order.objects.filter(state__in=[state.value for state in OPEN_ORDERS]).select_related("machine")
    if machine_ids is not None:
        rows = rows.filter(machine_id__any=machine_ids)
    found: dict[int, list[wire.Order]] = defaultdict(list)
    for order in rows.defer("machine__compute").order_by("offered_at", "id"):
        found[order.machine_id].append(
            wire.Order(
                id=str(order.pk),
                machine_id=order.machine.vm_id,
                event_id=order.spelled,
                issued_at=order.offered_at,
                expires_at=order.expires_at,
            )
        )
    return found
