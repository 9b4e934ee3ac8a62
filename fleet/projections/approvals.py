"""Read models of approvals, with the steps of each on the way to Azure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Unpack
from uuid import UUID

from django.db.models import Prefetch, QuerySet

from fleet.domain.approvals.conditions import Decision, When, next_wait, waits_for
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.reasons import Reason, from_json, read_reason
from fleet.domain.shapes import InApi, from_row, grouped
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EndedAs, EventStatus, OrderState
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts.decisions import decision_of
from fleet.models.facts.events import name_of, order_timeouts
from fleet.projections.changes import changed_at
from fleet.projections.pages import OrderedAt, Page, Segment, read_list
from fleet.projections.refs import MachineRef, RuleRef, SetRef, machine_ref, set_ref
from fleet.projections.visibility import load_facts, visible, without_names

# Progress of an approval towards Azure, step by step.

Progress = Literal["done", "now", "overdue", "failed", "ahead"]
# Condition that delays an approval, by the kind of delay.
CONDITIONS = {
    When.UNDO: Reason("step-undo"),
    When.PREPARED: Reason("step-prepared"),
    When.TIME: Reason("step-time"),
    When.TURN: Reason("step-turn"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an approval on the way to Azure. Progress `now` means that the step is in progress; `at` is when it
    was reached.
    """

    label: Reason | str
    state: Progress
    at: datetime | None = None
    detail: Reason | str = ""


def reason_of(order: Order) -> Reason | str:
    """Return the reason why an order ended."""
    # With an outcome, the reason is the agent's own text, unchanged.
    return order.reason if order.outcome else read_reason(order.reason)


def steps_of(approval: Approval, event: ScheduledEvent, orders: list[Order], *, now: datetime) -> tuple[Step, ...]:
    """Return the steps of an approval: decided, sent, answered, started, gone. After Azure's answer 200, the event may
    wait for approvals of other Azure customers; this wait is not overdue.
    """
    state = ApprovalState(approval.state)
    closed = state not in LIVE_APPROVALS
    if state is ApprovalState.WITHDRAWN and not orders:
        # No step failed: no order had been sent.
        before = [step for step in _decided(approval, state=state, closed=closed) if step.state == "done"]
        label = Reason("step-returned") if approval.returned else Reason("step-taken-back")
        return (*before, Step(label, "done", approval.closed_at))
    accepted = next((o for o in orders if o.azure_status is not None and 200 <= o.azure_status < 300), None)
    ended = event.status == EventStatus.ENDED.value
    steps = [
        *_decided(approval, state=state, closed=closed),
        _sent(orders, accepted=accepted, closed=closed, now=now),
        _answered(orders, accepted=accepted, state=state, closed=closed, now=now),
    ]
    if event.started_at is not None:
        steps.append(Step(Reason("step-started"), "done", event.started_at))
    elif ended and event.ended_as == EndedAs.CANCELLED.value:
        steps.append(Step(Reason("step-cancelled"), "failed", event.ended_at))
    elif ended and event.ended_as == EndedAs.MACHINE_DELETED.value:
        steps.append(Step(Reason("step-started"), "done", None, Reason("step-machine-deleted")))
    elif ended:
        how: tuple[str, Progress] = ("step-started", "done") if accepted else ("step-starts", "failed")
        steps.append(Step(Reason(how[0]), how[1], None, Reason("step-not-seen")))
    elif state is ApprovalState.ACCEPTED:
        steps.append(Step(Reason("step-starts"), "now", None, Reason("step-others-agree")))
    else:
        steps.append(Step(Reason("step-starts"), "ahead"))
    gone: Progress = "done" if ended else "now" if event.started_at is not None else "ahead"
    steps.append(Step(Reason("step-gone"), gone, event.ended_at if ended else None))
    if event.drill:
        # A drill simulates Azure's answers.
        return tuple(replace(step, label=rehearsed(step.label), detail=rehearsed(step.detail)) for step in steps)
    return tuple(steps)


def _decided(approval: Approval, *, state: ApprovalState, closed: bool) -> list[Step]:
    """Return the steps of the decision: the approver, the second approver if one is required, and the condition that
    the approval waits for. `closed`: the approval has ended.
    """
    when = When(approval.when)
    never_went = closed and approval.granted_at is None
    # An immediate approval that was not dispatched can only have waited for a second approver.
    two = state is ApprovalState.PROPOSED or approval.consented_at is not None or (never_went and when is When.NOW)
    label = Reason("step-proposed") if two else Reason("step-decided")
    steps = [Step(label, "done", approval.decided_at, Reason("step-by", by=name_of(approval)))]
    if two and approval.consented_by is not None:
        by = Reason("step-by", by=approval.consented_by.get_username())
        steps.append(Step(Reason("step-agreed"), "done", approval.consented_at, by))
    elif two:
        steps.append(Step(Reason("step-agrees"), "failed" if closed else "now"))
    if when is not When.NOW:
        reached: Progress = "ahead"
        if approval.granted_at is not None or closed:
            reached = "failed" if never_went else "done"
        elif state is ApprovalState.WAITING:
            reached = "now"
        steps.append(Step(CONDITIONS[when], reached, approval.granted_at))
    return steps


def _sent(orders: list[Order], *, accepted: Order | None, closed: bool, now: datetime) -> Step:
    delivered = accepted or next((order for order in reversed(orders) if order.delivered_at), None)
    if delivered is not None:
        by = Reason("step-by", by=delivered.delivered_by) if delivered.delivered_by else ""
        at = delivered.delivered_at or delivered.answered_at
        return Step(Reason("step-sent", machine=delivered.machine.resource_name), "done", at, by)
    if not orders:
        return Step(Reason("step-send", machine=""), "ahead" if not closed else "failed")
    newest = orders[-1]
    label = Reason("step-send", machine=newest.machine.resource_name)
    if closed:
        return Step(label, "failed", None, reason_of(newest))
    overdue = now - orders[0].offered_at > order_timeouts().sent_overdue
    return Step(label, "overdue" if overdue else "now", None, Reason("step-waits-for-agent"))


def _answered(
    orders: list[Order], *, accepted: Order | None, state: ApprovalState, closed: bool, now: datetime
) -> Step:
    if accepted is not None:
        return Step(Reason("step-answered", status=accepted.azure_status), "done", accepted.answered_at)
    answered = next((order for order in reversed(orders) if order.azure_status), None)
    if state is ApprovalState.CONFIRMED:
        return Step(Reason("step-answered", status=None), "done", None, Reason("step-answer-inferred"))
    if answered is not None and (closed or answered.outcome):
        label = Reason("step-answered", status=answered.azure_status)
        return Step(label, "failed", answered.answered_at, answered.reason)
    delivered = [order.delivered_at for order in orders if order.delivered_at]
    if closed or not delivered:
        return Step(Reason("step-answers"), "failed" if closed else "ahead")
    overdue = now - min(delivered) > order_timeouts().answered_overdue
    return Step(Reason("step-answers"), "overdue" if overdue else "now")


def rehearsed(said: Reason | str) -> Reason | str:
    """Return the wording for drills of a text about Azure."""
    return Reason("rehearsed", said=said) if said else ""


# Approvals and the outcome of each decision.

# States in which the approval still waits for a condition in Drydock.
NOT_GONE = (ApprovalState.PROPOSED, ApprovalState.WAITING)


@dataclass(frozen=True, slots=True)
class OrderRow:
    """One order to an agent; `delivered_by` names the path by which it reached the machine."""

    id: UUID
    machine: MachineRef
    state: OrderState
    offered_at: datetime
    expires_at: datetime | None
    delivered_at: datetime | None
    delivered_by: Annotated[str, "Which path brought it: `celery`, `beat`, `ticker`, `look` or `report`."]
    answered_at: datetime | None
    outcome: Annotated[str, "`answered`, `refused`, `failed`, or empty."]
    azure_status: Annotated[int | None, "The HTTP status of Azure's answer."]
    azure_body: str
    reason: Reason | str
    request_id: Annotated[str, "That of its approval."] = ""
    trace_id: Annotated[str, "That of its approval."] = ""

    @property
    def said(self) -> Reason | str:
        """Return the result of the order: the agent's answer, or the reason why the order was abandoned."""
        if self.outcome in ("refused", "failed") and self.reason:
            return Reason(f"order-{self.outcome}", reason=self.reason)
        return self.reason


@dataclass(frozen=True, slots=True)
class NextAsked:
    """The agent that gets the next order, and when, unless the state changes before. `silent` is the machine whose
    answer is awaited until then.
    """

    machine: MachineRef
    at: datetime
    silent: Annotated[MachineRef | None, "The machine that is waited for until then."]

    @property
    def sentence(self) -> Annotated[Reason, InApi.SHOWN]:
        silent = self.silent.resource_name if self.silent else ""
        return Reason("next-asked", machine=self.machine.resource_name, at=self.at, silent=silent)


@dataclass(frozen=True, slots=True)
class Overridden:
    """A guard that blocked the approval and was overridden: its sentence, and the reason that the user gave."""

    code: str
    sentence: Annotated[Reason | str, "What the guard said."]
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One approval with its orders, oldest order first."""

    id: int
    event_id: str
    event_type: str
    event_status: EventStatus
    set: SetRef
    state: ApprovalState
    by: Annotated[Reason | str, "Who decided."]
    via: Annotated[str, "Through what: `page`, `api` or `rule`."]
    token_name: Annotated[str, "The token's name; empty where there was none."]
    comment: str
    # The rule that decided, and its wording at that time.
    rule: Annotated[RuleRef | None, "The rule that decided; null where a person did."]
    rule_wording: Annotated[Reason | str, "How the rule was worded then; empty where a person decided."]
    event_version: Annotated[int, "The event's version when it was decided."]
    when: Annotated[When, "When it was to go."]
    due_at: Annotated[datetime | None, "The time that was said, with `when` being `time`."]
    overrides: Annotated[tuple[Overridden, ...], "The guards that were overridden, and why."]
    decided_at: Annotated[datetime, "When it was decided or proposed."]
    consented_by: Annotated[str, "The second person; empty where there was none."]
    consented_at: datetime | None
    consent_comment: str
    # The condition that it waits for now; empty once no condition in Drydock is left.
    waits_for: Annotated[Reason | str, "What it waits for now, in one sentence; empty once it is on its way or over."]
    granted_at: Annotated[datetime | None, "When it was to go to Azure; null while it waits."]
    accepted_at: Annotated[datetime | None, "When Azure answered 200."]
    accepted_by: Annotated[MachineRef | None, "The machine that asked Azure."]
    closed_at: datetime | None
    inferred: Annotated[bool, "Its end was concluded, not answered."]
    returned: Annotated[
        bool, "It ended since the decision no longer held; `reason` says why. The event needs a new decision."
    ]
    reason: Annotated[Reason | str, "One sentence about how it ended."]
    orders: Annotated[tuple[OrderRow, ...], "Oldest first."]
    steps: Annotated[tuple[Step, ...], "Decided, agreed to, due, sent, answered, started, gone."]
    # Last change of the approval, its orders and its event, by the database's clock.
    changed_at: datetime
    server_time: datetime
    # The decision, which is checked again before sending. It includes sets that the reader may not see.
    decision: Annotated[Decision | None, InApi.OMITTED] = field(default=None, metadata={"internal": True})
    # The wave that the approval belongs to, and its place in it.
    request_id: Annotated[
        str, "Of the request that decided, or of a rule's decision: found in every log. Empty before 0.2.0."
    ] = ""
    trace_id: Annotated[str, "The trace of that request (W3C Trace Context); empty if the request was not traced."] = ""
    wave: Annotated[int | None, "The id of the wave that it belongs to."] = None
    turn: Annotated[int | None, "Its place in the wave, from 1."] = None
    next_asked: Annotated[
        NextAsked | None, "Who is asked next and when, if nothing happens until then; in lists it is null."
    ] = None

    @property
    def live(self) -> bool:
        return self.state in LIVE_APPROVALS

    @property
    def may_be_withdrawn(self) -> Annotated[bool, InApi.SHOWN]:
        """Return whether a user may still withdraw the approval: only as long as no order was offered to an agent."""
        return self.state in (ApprovalState.PROPOSED, ApprovalState.WAITING, ApprovalState.GRANTED) and not self.orders

    @property
    def may_be_undone(self) -> bool:
        """Return whether the undo period of the approval is still running. It ends at `due_at`, when Drydock dispatches
        the approval unless it waits for another condition.
        """
        waits = self.state == ApprovalState.WAITING and self.when == When.UNDO
        return waits and self.due_at is not None and self.due_at > self.server_time

    @property
    def overdue(self) -> bool:
        return any(step.state == "overdue" for step in self.steps)


def _order_row(order: Order) -> OrderRow:
    trace = {"request_id": order.approval.request_id, "trace_id": order.approval.trace_id}
    return from_row(OrderRow, order, machine=machine_ref(order.machine), reason=reason_of(order), **trace)


def _waits_for(approval: Approval) -> Reason | str:
    if approval.state == ApprovalState.PROPOSED.value:
        return Reason("waits-for-second")
    return waits_for(When(approval.when), approval.due_at) if approval.state == ApprovalState.WAITING.value else ""


def _overridden(stored: Mapping[str, Any]) -> Overridden:
    # Rows written before guards had values contain the sentence instead.
    values = from_json(without_names(stored.get("values", {})))
    said = stored["sentence"] if "sentence" in stored else Reason(stored["code"], **values)
    return Overridden(stored["code"], said, stored["reason"])


def told_by(row: ApprovalRow, facts: EventFacts, *, now: datetime) -> ApprovalRow:
    """Return the row with the condition that the approval waits for, computed from the facts of its event."""
    if row.state not in NOT_GONE or row.decision is None:
        return row
    return replace(row, waits_for=next_wait(row, facts, row.decision, may_go=False, now=now).reason)


def approval_row(approval: Approval, event: ScheduledEvent, *, now: datetime) -> ApprovalRow:
    """Build the row of an approval that was loaded by `with_orders`. No query."""
    orders = list(approval.orders.all())
    reason = read_reason(approval.reason)
    return from_row(
        ApprovalRow,
        approval,
        event_id=event.event_id,
        event_type=event.event_type,
        event_status=EventStatus(event.status),
        set=set_ref(event.availability_set),
        by=name_of(approval),
        rule=RuleRef(id=approval.rule.pk, name=approval.rule.name) if approval.rule else None,
        overrides=tuple(map(_overridden, approval.overrides)),
        consented_by=approval.consented_by.get_username() if approval.consented_by else "",
        waits_for=_waits_for(approval),
        accepted_by=machine_ref(approval.accepted_by) if approval.accepted_by else None,
        # A late answer of Azure may have corrected the state.
        returned=approval.returned and approval.state == ApprovalState.WITHDRAWN.value,
        reason=rehearsed(reason) if event.drill else reason,
        orders=tuple(_order_row(order) for order in orders),
        steps=steps_of(approval, event, orders, now=now),
        changed_at=changed_at(approval, event, *orders),
        server_time=now,
        decision=decision_of(approval),
        wave=approval.wave_id,
    )


def with_orders(approvals: QuerySet[Approval]) -> QuerySet[Approval]:
    """Add to the query all related rows that `approval_row` needs, except the events."""
    ordered_ones = visible(Order).select_related("machine").order_by("offered_at", "pk")
    with_related = approvals.select_related("decided_by", "consented_by", "accepted_by", "rule")
    return with_related.prefetch_related(Prefetch("orders", ordered_ones))


def listing(
    *, now: datetime, approvals: QuerySet[Approval] | None = None, **at: Unpack[OrderedAt]
) -> Page[ApprovalRow]:
    """Return a page of approvals, newest decision first. `approvals` is a filtered queryset (see
    `filters.ApprovalFilter`). Two queries, or eleven if an approval of the page waits.
    """
    rows = with_orders(visible(Approval) if approvals is None else approvals).select_related("event__availability_set")
    page = read_list(Segment(rows, "decided_at", descending=True), **at)
    return page.map(lambda read: [row for _, row in _with_waits(read, now=now)])


def _with_waits(approvals: Sequence[Approval], *, now: datetime) -> list[tuple[int, ApprovalRow]]:
    """Return pairs of an event's row id and the approval's row, with the condition that the approval waits for."""
    found = [(approval.event_id, approval_row(approval, approval.event, now=now)) for approval in approvals]
    waiting = {event_id for event_id, row in found if row.state in NOT_GONE}
    facts = load_facts(waiting, now=now) if waiting else {}
    return [(event_id, told_by(row, facts[event_id], now=now) if event_id in facts else row) for event_id, row in found]


def by_event(events: Iterable[ScheduledEvent], *, now: datetime) -> dict[int, tuple[ApprovalRow, ...]]:
    """Return the approvals of each event, newest first, keyed by the event's row id. Two queries."""
    known = {event.pk: event for event in events}
    approvals = with_orders(visible(Approval).filter(event_id__in=list(known))).order_by("-pk")
    found = grouped((one.event_id, approval_row(one, known[one.event_id], now=now)) for one in approvals)
    return {pk: tuple(rows) for pk, rows in found.items()}


def event_of(approval_id: int) -> str | None:
    """Return the EventId of the event of an approval (row id). One query."""
    found: str | None = visible(Approval).filter(pk=approval_id).values_list("event__event_id", flat=True).first()
    return found


def details(approval_ids: Collection[int], *, now: datetime) -> list[tuple[int, ApprovalRow]]:
    """Return pairs of an event's row id and the approval's row for these approvals (row ids). Two queries, or eleven if
    one of them waits. `orders.approvals` also adds the agent that gets the next order.
    """
    found = with_orders(visible(Approval).filter(pk__in=approval_ids)).select_related("event__availability_set")
    return _with_waits(list(found), now=now)
