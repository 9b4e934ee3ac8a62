"""Approvals: how far a decision got."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db.models import Prefetch

from fleet.domain.conditions import When, next_wait
from fleet.domain.drills import without_azure
from fleet.domain.guards import EventFacts
from fleet.domain.relaying import in_words
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EventStatus, OrderState
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts import load_facts, name_of
from fleet.projections.refs import MachineRef, RuleRef, SetRef, machine_ref, rule_ref, set_ref

# An order usually takes well under a second to arrive and a few to be answered; beyond this a person should look.
SENT_OVERDUE = timedelta(seconds=5)
ANSWER_OVERDUE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class OrderRow:
    """One order; `delivered_by` names the path that brought it to its machine."""

    id: UUID
    machine: MachineRef
    state: OrderState
    offered_at: datetime
    expires_at: datetime | None
    delivered_at: datetime | None
    delivered_by: str
    answered_at: datetime | None
    outcome: str
    azure_status: int | None
    azure_body: str
    reason: str

    @property
    def said(self) -> str:
        """How it ended in words: an agent's refusal, or why it was left."""
        return f"Refused by the agent: {in_words(self.reason)}." if self.outcome == "refused" else self.reason


@dataclass(frozen=True, slots=True)
class NextAsked:
    """Who is asked next, and when, if nothing happens until then. `silent` is the machine that is waited for."""

    machine: MachineRef
    at: datetime
    silent: MachineRef | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way to Azure.

    `state`: `done`, `now` (in progress), `overdue`, `failed`, `ahead`. `at` is when it was reached.
    """

    label: str
    state: Literal["done", "now", "overdue", "failed", "ahead"]
    at: datetime | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Overridden:
    """A guard that stood against it, and the reason for which it was overcome."""

    code: str
    sentence: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval with its orders, oldest first."""

    id: int
    event_id: str
    event_type: str
    event_status: EventStatus
    set: SetRef
    state: ApprovalState
    by: str
    via: str
    token_name: str
    comment: str
    # The rule that decided, and how it was worded then.
    rule: RuleRef | None
    rule_wording: str
    event_version: int
    when: When
    due_at: datetime | None
    overrides: tuple[Overridden, ...]
    decided_at: datetime
    # The second person.
    consented_by: str
    consented_at: datetime | None
    consent_comment: str
    # What it waits for now, in one sentence; empty when it waits for nothing of ours.
    waits_for: str
    granted_at: datetime | None
    accepted_at: datetime | None
    accepted_by: MachineRef | None
    closed_at: datetime | None
    inferred: bool
    reason: str
    orders: tuple[OrderRow, ...]
    steps: tuple[Step, ...]
    server_time: datetime
    # The wave that it belongs to, and its place in it.
    wave: int | None = None
    turn: int | None = None
    next_asked: NextAsked | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE_APPROVALS

    @property
    def may_be_withdrawn(self) -> bool:
        """By a person, before an order was offered."""
        return self.state in (ApprovalState.PROPOSED, ApprovalState.WAITING, ApprovalState.GRANTED) and not self.orders

    @property
    def overdue(self) -> bool:
        return any(step.state == "overdue" for step in self.steps)


def _order_row(order: Order) -> OrderRow:
    return OrderRow(
        id=order.pk,
        machine=machine_ref(order.machine),
        state=OrderState(order.state),
        offered_at=order.offered_at,
        expires_at=order.expires_at,
        delivered_at=order.delivered_at,
        delivered_by=order.delivered_by,
        answered_at=order.answered_at,
        outcome=order.outcome,
        azure_status=order.azure_status,
        azure_body=order.azure_body,
        reason=order.reason,
    )


def _sent(orders: list[Order], *, accepted: Order | None, closed: bool, now: datetime) -> Step:
    delivered = accepted or next((order for order in reversed(orders) if order.delivered_at), None)
    if delivered is not None:
        by = f"by {delivered.delivered_by}" if delivered.delivered_by else ""
        at = delivered.delivered_at or delivered.answered_at
        return Step(f"Sent to {delivered.machine.resource_name}", "done", at, by)
    if not orders:
        return Step("Send to a machine", "ahead" if not closed else "failed")
    newest = orders[-1]
    label = f"Send to {newest.machine.resource_name}"
    if closed:
        return Step(label, "failed", None, newest.reason)
    return Step(label, "overdue" if now - orders[0].offered_at > SENT_OVERDUE else "now", None, "waits for its agent")


def _answered(
    orders: list[Order], *, accepted: Order | None, state: ApprovalState, closed: bool, now: datetime
) -> Step:
    if accepted is not None:
        return Step(f"Azure answered {accepted.azure_status}", "done", accepted.answered_at)
    answered = next((order for order in reversed(orders) if order.azure_status), None)
    if state is ApprovalState.CONFIRMED:
        return Step("Azure answered", "done", None, "inferred: the receipt never came")
    if answered is not None and (closed or answered.outcome):
        return Step(f"Azure answered {answered.azure_status}", "failed", answered.answered_at, answered.reason)
    delivered = [order.delivered_at for order in orders if order.delivered_at]
    if closed:
        return Step("Azure answers 200", "failed")
    if not delivered:
        return Step("Azure answers 200", "ahead")
    return Step("Azure answers 200", "overdue" if now - min(delivered) > ANSWER_OVERDUE else "now")


def _decided(approval: Approval, *, state: ApprovalState, closed: bool) -> list[Step]:
    """Who decided, the second person where there has to be one, and the condition where it waits for one."""
    when = When(approval.when)
    never_went = closed and approval.granted_at is None
    # What was to go at once and did not can only have waited for a second person.
    two = state is ApprovalState.PROPOSED or approval.consented_at is not None or (never_went and when is When.NOW)
    steps = [Step("Proposed" if two else "Decided", "done", approval.decided_at, f"by {name_of(approval)}")]
    if two and approval.consented_by is not None:
        name = approval.consented_by.get_username()
        steps.append(Step("Second person agreed", "done", approval.consented_at, f"by {name}"))
    elif two:
        steps.append(Step("Second person agrees", "failed" if closed else "now"))
    if when is not When.NOW:
        reached: Literal["done", "failed", "now", "ahead"] = "ahead"
        if approval.granted_at is not None or closed:
            reached = "failed" if never_went else "done"
        elif state is ApprovalState.WAITING:
            reached = "now"
        steps.append(Step(CONDITIONS[when], reached, approval.granted_at))
    return steps


CONDITIONS = {When.PREPARED: "Machines prepared", When.TIME: "Its time comes", When.TURN: "Its turn comes"}


def _waits_for(approval: Approval) -> str:
    if approval.state == ApprovalState.PROPOSED.value:
        return "It waits for a second person."
    if approval.state != ApprovalState.WAITING.value:
        return ""
    if approval.when == When.TIME.value and approval.due_at is not None:
        return f"It waits until {approval.due_at:%Y-%m-%d %H:%M:%S} UTC."
    if approval.when == When.TURN.value:
        return "It waits for its turn in the wave."
    return "It waits until every machine that it hits is prepared."


def told_by(row: ApprovalRow, facts: EventFacts, *, now: datetime) -> ApprovalRow:
    """The same with what exactly it waits for, by the facts of its event."""
    if row.state not in (ApprovalState.PROPOSED, ApprovalState.WAITING):
        return row
    step = next_wait(
        state=row.state,
        when=row.when,
        facts=facts,
        overcome=frozenset(one.code for one in row.overrides),
        due_at=row.due_at,
        may_go=False,
        now=now,
    )
    return replace(row, waits_for=step.reason)


def steps_of(approval: Approval, event: ScheduledEvent, orders: list[Order], *, now: datetime) -> tuple[Step, ...]:
    """Decided, sent, answered, started, gone. Waiting for other tenants after Azure's 200 is not overdue."""
    state = ApprovalState(approval.state)
    closed = state not in LIVE_APPROVALS
    accepted = next((o for o in orders if o.azure_status is not None and 200 <= o.azure_status < 300), None)
    ended = event.status == EventStatus.ENDED.value
    steps = [
        *_decided(approval, state=state, closed=closed),
        _sent(orders, accepted=accepted, closed=closed, now=now),
        _answered(orders, accepted=accepted, state=state, closed=closed, now=now),
    ]
    if event.started_at is not None:
        steps.append(Step("Started", "done", event.started_at))
    elif ended:
        steps.append(Step("Started", "done" if accepted else "failed", None, "not seen"))
    else:
        waiting = state is ApprovalState.ACCEPTED
        steps.append(
            Step("Starts", "now" if waiting else "ahead", None, "other tenants may have to agree" if waiting else "")
        )
    if ended:
        steps.append(Step("Gone", "done", event.ended_at))
    else:
        steps.append(Step("Gone", "now" if event.started_at is not None else "ahead"))
    return tuple(steps)


def _by(approval: Approval) -> str:
    return name_of(approval)


def _in_drill(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps of a rehearsal, which answers for Azure."""
    return tuple(replace(step, label=without_azure(step.label), detail=without_azure(step.detail)) for step in steps)


def approval_row(approval: Approval, event: ScheduledEvent, *, now: datetime) -> ApprovalRow:
    """Shape an approval loaded with its decider, machine and orders (`with_orders`). No query."""
    orders = list(approval.orders.all())
    steps = steps_of(approval, event, orders, now=now)
    return ApprovalRow(
        id=approval.pk,
        event_id=event.event_id,
        event_type=event.event_type,
        event_status=EventStatus(event.status),
        set=set_ref(event.availability_set),
        state=ApprovalState(approval.state),
        by=name_of(approval),
        via=approval.via,
        token_name=approval.token_name,
        comment=approval.comment,
        rule=rule_ref(approval.rule) if approval.rule else None,
        rule_wording=approval.rule_wording,
        event_version=approval.event_version,
        when=When(approval.when),
        due_at=approval.due_at,
        overrides=tuple(Overridden(one["code"], one["sentence"], one["reason"]) for one in approval.overrides),
        decided_at=approval.decided_at,
        consented_by=approval.consented_by.get_username() if approval.consented_by else "",
        consented_at=approval.consented_at,
        consent_comment=approval.consent_comment,
        waits_for=_waits_for(approval),
        granted_at=approval.granted_at,
        accepted_at=approval.accepted_at,
        accepted_by=machine_ref(approval.accepted_by) if approval.accepted_by else None,
        closed_at=approval.closed_at,
        inferred=approval.inferred,
        reason=without_azure(approval.reason) if event.drill else approval.reason,
        orders=tuple(_order_row(order) for order in orders),
        steps=_in_drill(steps) if event.drill else steps,
        server_time=now,
        wave=approval.wave_id,
        turn=approval.turn,
    )


def by_event(events: Iterable[ScheduledEvent], *, now: datetime) -> dict[int, tuple[ApprovalRow, ...]]:
    """The approvals of each event, newest first, by the event's primary key. Two queries."""
    known = {event.pk: event for event in events}
    approvals = (
        Approval.objects.filter(event_id__in=list(known))
        .select_related("decided_by", "consented_by", "accepted_by", "rule")
        .prefetch_related(Prefetch("orders", Order.objects.select_related("machine").order_by("offered_at", "pk")))
        .order_by("-pk")
    )
    found: dict[int, list[ApprovalRow]] = defaultdict(list)
    for approval in approvals:
        found[approval.event_id].append(approval_row(approval, known[approval.event_id], now=now))
    return {pk: tuple(rows) for pk, rows in found.items()}


def detail(*, approval_id: int, now: datetime) -> ApprovalRow | None:
    """One approval. Two queries; ten for one that waits. Who is asked next stands in `relaying.approval`."""
    approval = (
        Approval.objects.filter(pk=approval_id)
        .select_related("decided_by", "consented_by", "accepted_by", "rule", "event__availability_set")
        .prefetch_related(Prefetch("orders", Order.objects.select_related("machine").order_by("offered_at", "pk")))
        .first()
    )
    if approval is None:
        return None
    row = approval_row(approval, approval.event, now=now)
    if row.state not in (ApprovalState.PROPOSED, ApprovalState.WAITING):
        return row
    return told_by(row, load_facts([approval.event_id], now=now)[approval.event_id], now=now)
