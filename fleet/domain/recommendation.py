"""Recommendation for an event that needs a decision, and the time by which to decide.

A recommendation is only shown: no code acts on it. This module does no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.approvals.conditions import unprepared_names
from fleet.domain.approvals.guards import EventFacts, Guard, Need, affected_machines, guards
from fleet.domain.event_types import TYPES, event_type_of
from fleet.domain.events import FAR_AHEAD
from fleet.domain.policy.rules import Action
from fleet.domain.reasons import Reason
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import EventStatus, Presence

# The `Source` of an event that the own organisation has requested.
OWN = "User"


class Advised(StrEnum):
    """The recommended action. `look`: review the reasons, then decide."""

    START_NOW = "start_now"
    WHEN_PREPARED = "when_prepared"
    PROPOSE = "propose"
    WAIT = "wait"
    LOOK = "look"
    LEAVE = "leave"
    REDEPLOY = "redeploy"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class Experience:
    """Experience with earlier events of one type in one set.

    `count`: completed events; `median_seconds`: their median duration from start to end; `cancelled`: events that Azure
    cancelled. `relay_seconds`: the slowest recent approval of the set, from dispatch to Azure's answer (None: no
    approval yet).
    """

    count: int = 0
    median_seconds: float | None = None
    cancelled: int = 0
    relay_seconds: float | None = None


NONE_YET = Experience()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended action with the reasons for it."""

    advised: Advised
    reasons: tuple[Reason, ...]

    @property
    def sentence(self) -> Reason:
        """The action and the reasons as one sentence."""
        return Reason(f"recommend-{self.advised.value}", reasons=list(self.reasons))


def recommend(facts: EventFacts, experience: Experience, *, now: datetime) -> Recommendation | None:
    """Return the recommendation for an event; None if it no longer needs a decision."""
    past = facts.not_before is not None and facts.not_before <= now
    if facts.status is not EventStatus.SCHEDULED or past or facts.decision is not None:
        return None
    found = {guard.code: guard for guard in guards(facts, now=now)}
    against = _not_now(found) or _not_like_others(facts, found, now)
    if against is not None:
        return against
    return Recommendation(Advised.START_NOW, tuple(_speaks_for(facts, found, experience)))


def _because(advised: Advised, guard: Guard) -> Recommendation:
    return Recommendation(advised, (guard.sentence,))


# Guards that ask an approver to wait, review, or answer otherwise; the first of them counts.
ANSWERS: tuple[tuple[str, Advised], ...] = (
    ("advice-only", Advised.LEAVE),
    ("all-stopped", Advised.WAIT),
    ("no-live-machine", Advised.BY_HAND),
    ("set-in-flight", Advised.WAIT),
    ("held", Advised.LEAVE),
    ("service-in-flight", Advised.WAIT),
    ("no-approval-window", Advised.LOOK),
    ("hook-failed", Advised.LOOK),
)


def _not_now(found: Mapping[str, Guard]) -> Recommendation | None:
    for code, advised in ANSWERS:
        if code in found:
            return _because(advised, found[code])
    second = next((guard for guard in found.values() if guard.needs is Need.SECOND), None)
    return _because(Advised.PROPOSE, second) if second is not None else None


def _not_like_others(facts: EventFacts, found: Mapping[str, Guard], now: datetime) -> Recommendation | None:
    own = facts.source == OWN
    if not own and facts.not_before is not None and facts.not_before - now > FAR_AHEAD:
        return Recommendation(Advised.REDEPLOY, (Reason("recommend-far-ahead"),))
    if facts.event_type not in TYPES:
        return Recommendation(Advised.LOOK, (Reason("recommend-unknown-type"),))
    if not own and "lost-for-good" in found:
        return _because(Advised.LOOK, found["lost-for-good"])
    last = found.get("last-live-machines")
    if last is not None and not own and not event_type_of(facts.event_type).keeps_memory:
        return _because(Advised.LOOK, last)
    missing = unprepared_names(facts)
    if not missing:
        return None
    there = {machine.name.lower() for machine in affected_machines(facts) if machine.presence is Presence.LIVE}
    prepares = [name for name in missing if name.lower() in there]
    if prepares:
        return Recommendation(Advised.WHEN_PREPARED, (Reason("recommend-prepares", machines=prepares),))
    return Recommendation(Advised.LOOK, (Reason("recommend-nobody-prepares", machines=missing),))


def _speaks_for(facts: EventFacts, found: Mapping[str, Guard], experience: Experience) -> list[Reason]:
    reasons = [Reason("recommend-own")] if facts.source == OWN else []
    last = found.get("last-live-machines")
    if last is not None and last.values["only"]:
        reasons.append(Reason("recommend-only-machine"))
    reasons.append(
        Reason(
            "recommend-earlier",
            event_type=facts.event_type,
            count=experience.count,
            seconds=experience.median_seconds,
            cancelled=experience.cancelled,
        )
    )
    open_here = len(facts.others)
    reasons.append(Reason("recommend-open", count=open_here, service=facts.set_service))
    return reasons


def decide_by(not_before: datetime | None, *, relay: timedelta, undo: timedelta) -> datetime | None:
    """Return the latest time to decide so that the approval reaches Azure before NotBefore; None without NotBefore.

    `relay` is how long an approval needs to reach Azure, `undo` is the undo period.
    """
    return None if not_before is None else not_before - relay - undo


RULES: dict[Advised, Action] = {
    Advised.START_NOW: Action.APPROVE_NOW,
    Advised.WHEN_PREPARED: Action.APPROVE_WHEN_PREPARED,
}


def as_rule(facts: EventFacts, recommendation: Recommendation | None) -> dict[str, Any]:
    """Return the fields of a new rule that would act on similar events of this set as recommended; empty if no rule
    can.
    """
    action = RULES.get(recommendation.advised) if recommendation is not None else None
    if action is None or facts.drill or facts.set_kind == PROVISIONAL:
        return {}
    if facts.set_service:
        place = {"service": facts.set_service}
    else:
        place = {"set_pattern": facts.set_name, "resource_group": facts.set_resource_group}
    if any(mark in value for value in place.values() for mark in "*?"):
        # It would mean others, too.
        return {}
    stated: dict[str, Any] = {"action": action.value, "event_types": [facts.event_type], **place}
    if facts.source:
        stated["sources"] = [facts.source]
    if facts.duration_seconds is not None and facts.duration_seconds > 0:
        stated["max_duration_seconds"] = facts.duration_seconds
    return {name: value for name, value in stated.items() if value}
