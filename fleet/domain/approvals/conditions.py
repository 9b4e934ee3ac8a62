"""When an approval is sent to Azure: its condition, and whether its decision covers the event as it is then. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.approvals.guards import GUARD_TYPES, SECOND_PERSON, EventFacts, Guard, Need, affected_machines, guards
from fleet.domain.reasons import Reason, as_json
from fleet.domain.states import ApprovalState, EventStatus, Presence

# Whether a decision covers the event as it is now. It is checked before anything is sent.

# The values on which a decision depends. Status and description are not part of it.
SHOWN = ("event_type", "source", "duration_seconds", "not_before", "resources")
# A version is all that is known of a decision of an earlier release.
VERSION = "version"
# Guards that ask the user at the moment of the decision, or that the relay handles itself.
NOT_ASKED_AGAIN = frozenset(each.code for each in GUARD_TYPES if not each.asked_again)
OF_THE_RELAY = frozenset(each.code for each in GUARD_TYPES if each.left_to_relay)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, with what is needed to check it again.

    `shown`: the event's values when it was decided (empty for a decision of an earlier release). `overrides`: the
    overridden guards as stored with the approval. `accepted`: guard codes that the rule accepts now; None for a
    decision of a person. `consented`: a second person agreed. `lost`: why the person or rule may no longer decide this.
    """

    version: int
    shown: Mapping[str, Any]
    overrides: tuple[Mapping[str, Any], ...] = ()
    accepted: frozenset[str] | None = None
    consented: bool = False
    granted_at: datetime | None = None
    lost: Reason | None = None

    @property
    def by_rule(self) -> bool:
        return self.accepted is not None


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an approval is not sent. `returns`: users or rules must decide again; otherwise the approval only waits."""

    reason: Reason
    returns: bool = True


def shown(facts: EventFacts) -> dict[str, Any]:
    """Return the event's values on which a decision depends, as JSON values."""
    values: dict[str, Any] = as_json({name: getattr(facts, name) for name in SHOWN})
    return values


def differences(decision: Decision, facts: EventFacts) -> list[dict[str, Any]]:
    """Return how the event differs from what was decided: `field`, `before` and `after` of each difference.

    A later NotBefore does not count, an earlier one does. A value that Azure had not stated before counts. The order
    and letter case of `Resources` do not count.
    """
    if not decision.shown:
        return [] if decision.version == facts.version else [_change(VERSION, decision.version, facts.version)]
    pairs = {name: (decision.shown.get(name), value) for name, value in shown(facts).items()}
    return [_change(name, *values) for name, values in pairs.items() if _differs(name, *values)]


def _change(name: str, before: Any, after: Any) -> dict[str, Any]:
    return {"field": name, "before": before, "after": after}


def _differs(name: str, before: Any, after: Any) -> bool:
    match name:
        case "resources":
            return {str(one).lower() for one in before or ()} != {str(one).lower() for one in after or ()}
        case "duration_seconds":
            # -1 is Azure's word for unknown.
            before, after = (None if one is None or one < 0 else one for one in (before, after))
        case "not_before" if before and after:
            return datetime.fromisoformat(after) < datetime.fromisoformat(before)
    return bool(before != after)


def ended_by(decision: Decision, facts: EventFacts) -> Reason | None:
    """Return why the decision is no longer valid: the event changed, or the right to decide was lost. None if it is
    valid.
    """
    changes = differences(decision, facts)
    if changes:
        return Reason("decided-on-other-values", changes=changes, rule=decision.by_rule)
    return decision.lost


def uncovered(decision: Decision, found: Iterable[Guard]) -> list[Guard]:
    """Return the guards that require something which this decision does not cover."""
    return [guard for guard in found if guard.needs is not Need.NOTE and not _is_covered(decision, guard)]


def against_sending(decision: Decision, facts: EventFacts, *, now: datetime) -> list[Guard]:
    """Return the guards that prevent an earlier decision from being sent now."""
    return [guard for guard in uncovered(decision, guards(facts, now=now)) if guard.code not in NOT_ASKED_AGAIN]


def _is_covered(decision: Decision, guard: Guard) -> bool:
    if decision.accepted is not None:
        # A rule accepts a guard in advance, whatever it names.
        return guard.code in decision.accepted
    if guard.code == SECOND_PERSON and decision.consented:
        return True
    return any(covers(one, guard) for one in decision.overrides)


def covers(overridden: Mapping[str, Any], guard: Guard) -> bool:
    """Return whether an override covers the guard as it applies now. `overridden` is the stored override.

    Example: an override for one event in flight does not cover three, and one for a window does not cover another
    window.
    """
    if overridden.get("code") != guard.code or "values" not in overridden:
        return False
    before, now = overridden["values"], as_json(guard.values)
    # A decision of an earlier release named less.
    return all(_names_all(name, before[name], now.get(name)) for name in before)


def _names_all(name: str, before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return all(one in before for one in now)
    if name == "count" and isinstance(before, int) and isinstance(now, int):
        return now <= before
    return bool(before == now)


def recheck(decision: Decision, facts: EventFacts, *, now: datetime) -> Objection | None:
    """Return why an order of a granted approval must not be sent or handed out; None if it may be.

    Another event that was approved later than this decision does not count. If the event affects the last live machine,
    the approval returns to users only if the other machines are silent; late machines may soon be live again.
    """
    if facts.status is not EventStatus.SCHEDULED:
        return None
    reason = ended_by(decision, facts)
    if reason is not None:
        return Objection(reason)
    # Those that were approved before this decision, or at a time that is not known.
    since = decision.granted_at
    before = (one for one in facts.others if since is None or one.granted_at is None or one.granted_at < since)
    facts = replace(facts, others=tuple(before))
    against = _against(decision, facts, now)
    if not against:
        return None
    late_as_live = (
        replace(machine, presence=Presence.LIVE) if machine.presence is Presence.LATE else machine
        for machine in facts.machines
    )
    patient = replace(facts, machines=tuple(late_as_live))
    reason = Reason("decided-before-guard", guard=against[0].sentence, rule=decision.by_rule)
    return Objection(reason, returns=bool(_against(decision, patient, now)))


def _against(decision: Decision, facts: EventFacts, now: datetime) -> list[Guard]:
    return [guard for guard in against_sending(decision, facts, now=now) if guard.code not in OF_THE_RELAY]


# The condition of an approval: sent to Azure now, or once it is met.


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
