"""Conditions of approvals: sent to Azure now, or once a condition is met. Pure: the caller carries the step out."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.domain.approvals.guards import EventFacts, affected_machines
from fleet.domain.approvals.recheck import Decision, against_sending, ended_by
from fleet.domain.reasons import Reason
from fleet.domain.states import ApprovalState, EventStatus


class When(StrEnum):
    """The time of dispatch: `now`; after an undo period (`undo`); once every machine in `Resources` is `prepared`; at a
    `time`; at its `turn` in a wave.
    """

    NOW = "now"
    UNDO = "undo"
    PREPARED = "prepared"
    TIME = "time"
    TURN = "turn"


# Guards that a later decision need not override at once: they are evaluated again at dispatch.
LATER: dict[When, tuple[str, ...]] = {
    When.PREPARED: ("not-prepared", "hook-failed"),
    When.TURN: ("set-in-flight", "service-in-flight", "not-prepared"),
}
# They go at their `due_at`.
TIMED = (When.UNDO, When.TIME)
# So close to NotBefore nothing waits to be undone.
NO_UNDO = timedelta(minutes=1)
# A click takes this long from the page to the backend: the page stops offering undo this much earlier.
CLICK = timedelta(seconds=2)


def undo_until(facts: EventFacts, *, now: datetime, seconds: float) -> datetime | None:
    """Until when an approval that is given now can be undone; None where it goes at once."""
    until = now + timedelta(seconds=seconds)
    in_a_hurry = facts.not_before is not None and facts.not_before - now < NO_UNDO
    return None if until <= now or in_a_hurry else until


@dataclass(frozen=True, slots=True)
class UndoOffer:
    """The undo period of an approval that is given now, as a page may promise it: `seconds`, 0 where it is sent at
    once. The promise applies to a click until `offered_until`; None where NotBefore does not limit it. `in_a_hurry`:
    NotBefore is too close.
    """

    seconds: float
    offered_until: datetime | None
    in_a_hurry: bool
    close_seconds: float = NO_UNDO.total_seconds()


def undo_offer(facts: EventFacts, *, now: datetime, seconds: float) -> UndoOffer:
    """Return the promise that `undo_until` keeps for every click until `offered_until`."""
    lead = NO_UNDO + CLICK
    late = facts.not_before is not None and facts.not_before <= now + lead
    until = None if late else undo_until(facts, now=now, seconds=seconds)
    offered = (until - now).total_seconds() if until is not None else 0.0
    # A stated time may be any: the first day of the calendar has no minute before it, but it is late.
    offered_until = facts.not_before - lead if offered and facts.not_before is not None else None
    return UndoOffer(offered, offered_until, late and seconds > 0)


class Wait(StrEnum):
    """The next step of a waiting approval. `return`: the decision is no longer valid, so people or the rule decide
    again."""

    STAY = "stay"
    GRANT = "grant"
    RETURN = "return"
    LAPSE = "lapse"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class WaitStep:
    """The step of a waiting approval, and its reason."""

    do: Wait
    reason: Reason


def unprepared_names(facts: EventFacts) -> list[str]:
    """The names in `Resources` that are not prepared; machines without an agent never are."""
    ready = {machine.name.lower() for machine in affected_machines(facts) if machine.ready}
    return [name for name in facts.resources if name.lower() not in ready]


def waits_for(when: When, due_at: datetime | None) -> Reason:
    """Return what a later decision waits for, as far as that is known without its event."""
    return Reason(f"waits-for-{when.value}", **({"due_at": due_at} if when in TIMED else {}))


def check_condition(
    when: When, facts: EventFacts, *, due_at: datetime | None, may_go: bool, now: datetime
) -> tuple[bool, Reason]:
    """Return whether the condition is met, and what it waits for or why it is met. `may_go`: its wave permits it."""
    if when is When.PREPARED and (missing := unprepared_names(facts)):
        return False, Reason("waits-for-machines", machines=missing)
    waits = (when in TIMED and due_at is not None and due_at > now) or (when is When.TURN and not may_go)
    if waits:
        return False, waits_for(when, due_at)
    return True, Reason(f"met-{when.value}", **({"due_at": due_at} if when in TIMED else {}))


def next_wait(
    *,
    state: ApprovalState,
    when: When,
    facts: EventFacts,
    decision: Decision,
    due_at: datetime | None,
    may_go: bool,
    now: datetime,
) -> WaitStep:
    """Return the next step of an approval in PROPOSED or WAITING.

    Before dispatch, the guards are evaluated again: one that the decision does not cover keeps it waiting until
    NotBefore.
    """
    if facts.status is EventStatus.STARTED:
        return WaitStep(Wait.VOID, Reason("started-before-sent"))
    if facts.status is EventStatus.ENDED:
        return WaitStep(Wait.VOID, Reason("ended-before-sent"))
    if facts.not_before is not None and facts.not_before <= now:
        return WaitStep(Wait.LAPSE, Reason("lapsed-waiting", proposed=state is ApprovalState.PROPOSED))
    ended = ended_by(decision, facts)
    if ended is not None:
        return WaitStep(Wait.RETURN, ended)
    if state is ApprovalState.PROPOSED:
        return WaitStep(Wait.STAY, Reason("waits-for-second"))
    is_met, reason = check_condition(when, facts, due_at=due_at, may_go=may_go, now=now)
    if not is_met:
        return WaitStep(Wait.STAY, reason)
    against = against_sending(decision, facts, now=now)
    if against:
        return WaitStep(Wait.STAY, Reason("kept-by-guard", reason=reason, guard=against[0].sentence))
    return WaitStep(Wait.GRANT, reason)
