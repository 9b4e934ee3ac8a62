"""Rules, which decide events automatically: which rule applies to an event, and validation of rules."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum
from typing import Any

from fleet.domain.approvals.conditions import LATER, When
from fleet.domain.approvals.guards import ACCEPTABLE, EventFacts, Guard, affected_machines, guards, remaining_guards
from fleet.domain.event_types import ADVICE_TYPES, TYPES, is_advice, is_unknown
from fleet.domain.intake import Prepared
from fleet.domain.people import speaks_of
from fleet.domain.policy.hours import LABELS, in_hours, is_among, stated_values
from fleet.domain.reasons import Reason, Refused


class Action(StrEnum):
    """What a rule does with an event that it matches. `leave`: users decide, and no later rule is tried."""

    APPROVE_NOW = "approve_now"
    APPROVE_WHEN_PREPARED = "approve_when_prepared"
    HOLD = "hold"
    LEAVE = "leave"


ACTION_LABELS: dict[Action, str] = {
    Action.APPROVE_NOW: "Approve now",
    Action.APPROVE_WHEN_PREPARED: "Approve once every machine is prepared",
    Action.HOLD: "Leave it to Azure",
    Action.LEAVE: "Leave to people",
}
APPROVES: dict[Action, When] = {
    Action.APPROVE_NOW: When.NOW,
    Action.APPROVE_WHEN_PREPARED: When.PREPARED,
}


@dataclass(frozen=True, slots=True)
class StandingRule:
    """A rule, with the fields of the model `Rule`. `rule_id` is 0 until the rule is saved."""

    name: str = ""
    reason: str = ""
    action: str = Action.LEAVE.value
    event_types: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    min_duration_seconds: int | None = None
    max_duration_seconds: int | None = None
    unknown_duration: bool = False
    set_pattern: str = ""
    service: str = ""
    resource_group: str = ""
    weekdays: tuple[int, ...] = ()
    from_time: time | None = None
    until_time: time | None = None
    time_zone: str = "UTC"
    min_notice_seconds: int | None = None
    max_notice_seconds: int | None = None
    accepts: tuple[str, ...] = ()
    expires_at: datetime | None = None
    enabled: bool = False
    deleted: bool = False
    rule_id: int = 0
    position: int = 0


# What people state in a rule; the rest is its place and its life.
SAID = tuple(name for name in StandingRule.__slots__ if name in ("name", "reason") or name not in LABELS)


def is_in_force(rule: StandingRule, *, now: datetime) -> bool:
    """Return whether a rule is enabled, not expired and not deleted."""
    return rule.enabled and not rule.deleted and (rule.expires_at is None or now < rule.expires_at)


def is_matching(rule: StandingRule, facts: EventFacts, *, now: datetime) -> bool:
    """Return whether a rule is in force and matches this event now. No rule matches a drill."""
    return (
        is_in_force(rule, now=now)
        and may_concern(rule, facts)
        and _is_within(
            None if facts.not_before is None else (facts.not_before - now).total_seconds(),
            rule.min_notice_seconds,
            rule.max_notice_seconds,
        )
        and in_hours(rule, now)
    )


def may_concern(rule: StandingRule, facts: EventFacts) -> bool:
    """Return whether a rule could match this event at some time, ignoring hours and notice."""
    # -1 is Azure's word for unknown: it may be an hour.
    known = facts.duration_seconds is not None and facts.duration_seconds >= 0
    return (
        not facts.drill
        and _may_decide(rule, facts.event_type)
        and is_among(facts.event_type, rule.event_types)
        and is_among(facts.source, rule.sources)
        and _is_within(
            facts.duration_seconds if known else None,
            rule.min_duration_seconds,
            rule.max_duration_seconds,
            unknown=rule.unknown_duration,
        )
        and speaks_of(rule, facts.place)
    )


def _may_decide(rule: StandingRule, event_type: str) -> bool:
    """Return whether a rule may decide an event of this type: never advice, and an unknown type only if named
    exactly.
    """
    if rule.action not in APPROVES:
        return True
    return not is_advice(event_type) and (not is_unknown(event_type) or event_type in rule.event_types)


def first_match(rules: Iterable[StandingRule], facts: EventFacts, *, now: datetime) -> StandingRule | None:
    """Return the first rule, in the given order, that matches the event; this rule decides. None if none matches."""
    return next((rule for rule in rules if is_matching(rule, facts, now=now)), None)


def _is_within(value: float | None, least: int | None, most: int | None, *, unknown: bool = False) -> bool:
    """Return whether a value is within these limits, both included. For None it returns `unknown` if there is one."""
    if least is None and most is None:
        return True
    if value is None:
        return unknown
    return (least is None or value >= least) and (most is None or value <= most)


class RuleAction(StrEnum):
    """What the rules do with an event. `guarded`: a rule would approve, but a guard blocks the approval."""

    NOTHING = "nothing"
    APPROVE = "approve"
    HOLD = "hold"
    LEAVE = "leave"
    GUARDED = "guarded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the first matching rule does, and the guards (`against`) that block it because it does not accept them."""

    does: RuleAction
    rule: StandingRule | None = None
    against: tuple[Guard, ...] = ()

    @property
    def acts(self) -> bool:
        return self.does in (RuleAction.APPROVE, RuleAction.HOLD)


def verdict(rules: Iterable[StandingRule], facts: EventFacts, *, now: datetime) -> Verdict:
    """Return what these rules, in their order, do with an undecided event."""
    rule = first_match(rules, facts, now=now)
    if rule is None:
        return Verdict(RuleAction.NOTHING)
    action = Action(rule.action)
    if action not in APPROVES:
        return Verdict(RuleAction.HOLD if action is Action.HOLD else RuleAction.LEAVE, rule)
    when = APPROVES[action]
    later = LATER.get(when, ()) if approves_when(rule, facts) is when else ("not-prepared",)
    found = [guard for guard in guards(facts, now=now) if guard.code not in later]
    against = tuple(remaining_guards(found, accepted_reasons(rule)))
    return Verdict(RuleAction.GUARDED if against else RuleAction.APPROVE, rule, against)


def approves_when(rule: StandingRule, facts: EventFacts) -> When:
    """Return when an approval of this rule is sent. A rule that approves now waits for machines that plan to prepare
    later, unless it accepts that they are not prepared: the approval makes them prepare.
    """
    planned = any(machine.prepared is Prepared.PLANNED for machine in affected_machines(facts))
    return When.PREPARED if planned and "not-prepared" not in rule.accepts else APPROVES[Action(rule.action)]


def still_deciding_rule(rules: Iterable[StandingRule], approval: Any, facts: EventFacts) -> StandingRule | None:
    """Return the current version of the rule that made this decision (its row), if the rules would still decide the
    same; else None.

    Hours and notice are checked for the time of the decision, because they change with time alone.
    """
    rule = first_match(rules, facts, now=approval.decided_at)
    if rule is None or rule.rule_id != approval.rule_id or Action(rule.action) not in APPROVES:
        return None
    return rule if approval.when in (APPROVES[Action(rule.action)], When.PREPARED) else None


def accepted_reasons(rule: StandingRule) -> dict[str, str]:
    """Return the reasons that a rule gives in advance for guards, by guard code, in the form of an approval's
    `overrides`.
    """
    return {code: rule.reason for code in rule.accepts if code in ACCEPTABLE}


def wording(rule: StandingRule) -> Reason:
    """Return the whole rule as a sentence. It is stored with each decision of the rule."""
    return Reason("rule", **{"action": rule.action, **stated_values(rule)})


# Faults of a rule as a whole; the model checks each field alone. Each fault names its field and a reason.

SOURCES = ("Platform", "User")

# The name of a field, and its fault: a sentence where its model refuses it.
Fault = tuple[str, Reason | str]
# A rule may also name a type that Drydock does not know, exactly as Azure spells it.
TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,49}")


def faults(rule: StandingRule, *, now: datetime) -> Iterator[Fault]:
    """Yield the faults of a rule as a whole. Each field must already be valid."""
    if rule.accepts and rule.action not in APPROVES:
        yield "accepts", Reason("accepts-without-approving")
    misspelt = next((one for one in rule.event_types if _is_misspelt(one, rule)), None)
    if misspelt is not None:
        yield "event_types", Reason("choice-unknown", field="event_types", chosen=misspelt, known=TYPES)
    for what, least, most in (
        ("duration", rule.min_duration_seconds, rule.max_duration_seconds),
        ("notice", rule.min_notice_seconds, rule.max_notice_seconds),
    ):
        if least is not None and most is not None and least > most:
            yield f"max_{what}_seconds", Reason("limits-reversed", what=what, least=least, most=most)
    if rule.expires_at is not None and rule.expires_at <= now:
        yield "expires_at", Reason("expiry-past")


def refuse(found: Sequence[Fault], *, inside: str = "") -> None:
    """Raise Refused `validation` for the first fault, with all faults as `errors`. Does nothing if there are none.

    `inside` is a prefix for the field names.
    """
    if found:
        errors = [{"field": inside + field, "message": reason} for field, reason in found]
        raise Refused("validation", found[0][1], errors=errors)


def _is_misspelt(event_type: str, rule: StandingRule) -> bool:
    """Return whether a rule cannot use this type: not a type name, a known type in other letters, or advice to
    approve.
    """
    if event_type in TYPES:
        return False
    if is_advice(event_type):
        return event_type not in ADVICE_TYPES or rule.action in APPROVES
    return not is_unknown(event_type) or not TYPE_NAME.fullmatch(event_type)
