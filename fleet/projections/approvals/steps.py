"""The way of an approval to Azure, step by step."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from fleet.domain.approvals.conditions import When
from fleet.domain.reason import Reason, read_reason
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EndedAs, EventStatus
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts.events import name_of, order_timeouts

Progress = Literal["done", "now", "overdue", "failed", "ahead"]
# What an approval waits for that does not go at once.
CONDITIONS = {
    When.UNDO: Reason("step-undo"),
    When.PREPARED: Reason("step-prepared"),
    When.TIME: Reason("step-time"),
    When.TURN: Reason("step-turn"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way to Azure. `now` is in progress; `at` is when it was reached."""

    label: Reason | str
    state: Progress
    at: datetime | None = None
    detail: Reason | str = ""


def reason_of(order: Order) -> Reason | str:
    """Why an order ended."""
    # Beside an outcome it is what the agent said, word for word.
    return order.reason if order.outcome else read_reason(order.reason)


def steps_of(approval: Approval, event: ScheduledEvent, orders: list[Order], *, now: datetime) -> tuple[Step, ...]:
    """Decided, sent, answered, started, gone. Waiting for other tenants after Azure's 200 is not overdue."""
    state = ApprovalState(approval.state)
    closed = state not in LIVE_APPROVALS
    if state is ApprovalState.WITHDRAWN and not orders:
        # Nothing failed: nothing was on its way.
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
        # A rehearsal answers for Azure.
        return tuple(replace(step, label=rehearsed(step.label), detail=rehearsed(step.detail)) for step in steps)
    return tuple(steps)


def _decided(approval: Approval, *, state: ApprovalState, closed: bool) -> list[Step]:
    """Who decided, the second person where there has to be one, and the condition where it waits for one."""
    when = When(approval.when)
    never_went = closed and approval.granted_at is None
    # What was to go at once and did not can only have waited for a second person.
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
        return Step(_answer(accepted), "done", accepted.answered_at)
    answered = next((order for order in reversed(orders) if order.azure_status), None)
    if state is ApprovalState.CONFIRMED:
        return Step(Reason("step-answered", status=None), "done", None, Reason("step-answer-inferred"))
    if answered is not None and (closed or answered.outcome):
        return Step(_answer(answered), "failed", answered.answered_at, answered.reason)
    delivered = [order.delivered_at for order in orders if order.delivered_at]
    if closed or not delivered:
        return Step(Reason("step-answers"), "failed" if closed else "ahead")
    overdue = now - min(delivered) > order_timeouts().answered_overdue
    return Step(Reason("step-answers"), "overdue" if overdue else "now")


def _answer(order: Order) -> Reason:
    return Reason("step-answered", status=order.azure_status)


def rehearsed(said: Reason | str) -> Reason | str:
    """What is said of Azure, as it is said in a drill."""
    return Reason("rehearsed", said=said) if said else ""
