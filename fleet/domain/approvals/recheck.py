"""Check of an approval before anything is sent: does the decision cover the event as it is now? This module does no
I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fleet.domain.approvals.guards import GUARD_TYPES, SECOND_PERSON, EventFacts, Guard, Need, guards
from fleet.domain.reasons import Reason, as_json
from fleet.domain.states import EventStatus, Presence

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
