"""Conditions of approvals: sent to Azure now, or once a condition is met. This module does no I/O."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.approvals.guards import EventFacts, affected_machines
from fleet.domain.approvals.recheck import Decision, against_sending, ended_by
from fleet.domain.reasons import Reason
from fleet.domain.states import ApprovalState, EventStatus


class When(StrEnum):
    """When an approval is sent to Azure.

    `now`: immediately; `undo`: after the undo period; `prepared`: once every machine in `Resources` is prepared;
    `time`: at a stated time; `turn`: when the wave reaches this event.
    """

    NOW = "now"
    UNDO = "undo"
    PREPARED = "prepared"
    TIME = "time"
    TURN = "turn"


# Guards that a later decision need not override at once: they are evaluated again at dispatch.
LATER: dict[When, tuple[str, ...]] = {
    When.PREPARED: ("not-prepared", "hook-failed"),
    When.TIME: ("not-prepared",),
    When.TURN: ("set-in-flight", "service-in-flight", "not-prepared"),
}
# They go at their `due_at`.
TIMED = (When.UNDO, When.TIME)
# So close to NotBefore nothing waits to be undone.
NO_UNDO = timedelta(minutes=1)
# A click takes this long from the page to the backend: the page stops offering undo this much earlier.
CLICK = timedelta(seconds=2)


def undo_until(facts: EventFacts, *, now: datetime, seconds: float) -> datetime | None:
    """Return until when an approval that is given now can be undone; None if it must be sent at once.

    `seconds` is the undo period.
    """
    until = now + timedelta(seconds=seconds)
    in_a_hurry = facts.not_before is not None and facts.not_before - now < NO_UNDO
    return None if until <= now or in_a_hurry else until


@dataclass(frozen=True, slots=True)
class UndoOffer:
    """The undo period that a page may promise for an approval.

    `seconds`: length of the period; 0 if the approval is sent at once. `offered_until`: the promise holds for a click
    until then (None: no limit by NotBefore). `in_a_hurry`: there is no undo period because NotBefore is too close.
    """

    seconds: float
    offered_until: datetime | None
    in_a_hurry: bool
    close_seconds: float = NO_UNDO.total_seconds()


def undo_offer(facts: EventFacts, *, now: datetime, seconds: float) -> UndoOffer:
    """Return the undo period that a page may promise. The promise holds if the user clicks before `offered_until`."""
    lead = NO_UNDO + CLICK
    late = facts.not_before is not None and facts.not_before <= now + lead
    until = None if late else undo_until(facts, now=now, seconds=seconds)
    offered = (until - now).total_seconds() if until is not None else 0.0
    # A stated time may be any: the first day of the calendar has no minute before it, but it is late.
    offered_until = facts.not_before - lead if offered and facts.not_before is not None else None
    return UndoOffer(offered, offered_until, late and seconds > 0)


class Wait(StrEnum):
    """What happens next with a waiting approval. `return`: the decision is no longer valid, and users or rules decide
    again.
    """

    STAY = "stay"
    GRANT = "grant"
    RETURN = "return"
    LAPSE = "lapse"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class WaitStep:
    """What happens next with a waiting approval, and the reason."""

    do: Wait
    reason: Reason


def unprepared_names(facts: EventFacts) -> list[str]:
    """Return the names in `Resources` of machines that are not prepared. A machine without an agent never is."""
    ready = {machine.name.lower() for machine in affected_machines(facts) if machine.ready}
    return [name for name in facts.resources if name.lower() not in ready]


def waits_for(when: When, due_at: datetime | None) -> Reason:
    """Return what an approval of this kind waits for, as a reason that needs no facts about the event."""
    return Reason(f"waits-for-{when.value}", **({"due_at": due_at} if when in TIMED else {}))


def is_start_decided(when: When, *, due_at: datetime | None, may_go: bool, now: datetime) -> bool:
    """Return whether a waiting approval waits for nothing but machines that prepare, so that they must prepare now."""
    if when is When.TURN:
        return may_go
    return when is When.PREPARED or (due_at is not None and due_at <= now)


def next_wait(approval: Any, facts: EventFacts, decision: Decision, *, may_go: bool, now: datetime) -> WaitStep:
    """Return what happens next with an approval (its row or read model) in the state PROPOSED or WAITING. `may_go`: the
    wave has reached the event.

    The guards are evaluated again when the condition is met. A guard that the decision does not cover delays the
    approval, at most until NotBefore.
    """
    when, due_at, proposed = When(approval.when), approval.due_at, approval.state == ApprovalState.PROPOSED
    if facts.status is EventStatus.STARTED:
        return WaitStep(Wait.VOID, Reason("started-before-sent"))
    if facts.status is EventStatus.ENDED:
        return WaitStep(Wait.VOID, Reason("ended-before-sent"))
    if facts.not_before is not None and facts.not_before <= now:
        return WaitStep(Wait.LAPSE, Reason("lapsed-waiting", proposed=proposed))
    ended = ended_by(decision, facts)
    if ended is not None:
        return WaitStep(Wait.RETURN, ended)
    if proposed:
        return WaitStep(Wait.STAY, Reason("waits-for-second"))
    if when is When.PREPARED and (missing := unprepared_names(facts)):
        return WaitStep(Wait.STAY, Reason("waits-for-machines", machines=missing))
    if (when in TIMED and due_at is not None and due_at > now) or (when is When.TURN and not may_go):
        return WaitStep(Wait.STAY, waits_for(when, due_at))
    reason = Reason(f"met-{when.value}", **({"due_at": due_at} if when in TIMED else {}))
    against = against_sending(decision, facts, now=now)
    if against:
        return WaitStep(Wait.STAY, Reason("kept-by-guard", reason=reason, guard=against[0].sentence))
    return WaitStep(Wait.GRANT, reason)
