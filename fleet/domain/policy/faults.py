"""What is wrong with a rule that somebody wants to have. Pure: each fault is the name of its field and a reason."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from fleet.domain.approvals.guards import ACCEPTABLE
from fleet.domain.events.types import ADVICE_TYPES, TYPES, is_advice, is_unknown
from fleet.domain.policy.hours import zone_of
from fleet.domain.policy.rules import APPROVES, Action, StandingRule
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused

SOURCES = ("Platform", "User")
MAX_NAME, MAX_REASON, MAX_PATTERN, MAX_NUMBER = 200, 2000, 200, 2**31 - 1

Fault = tuple[str, Reason]
# What rules and routes may choose of events, by field.
EVENT_CHOICES: dict[str, tuple[str, ...]] = {"event_types": (*TYPES, *ADVICE_TYPES), "sources": SOURCES}
# A rule may also name a type that Drydock does not know, exactly as Azure spells it.
TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,49}")
MOST_TYPES = 50


def faults(rule: StandingRule, *, now: datetime) -> list[Fault]:
    """What is wrong with a rule; empty when nothing is."""
    return [
        *text_faults("rule", rule.name, rule.reason),
        *_choice_faults(rule),
        *_limit_faults(rule),
        *_time_faults(rule, now),
    ]


def trying_faults(rule: StandingRule, *, now: datetime) -> list[Fault]:
    """The same for a rule that is only tried: that may be before it has a name, and after it has expired."""
    return [fault for fault in faults(rule, now=now) if fault[0] not in ("name", "reason", "expires_at")]


def refuse(found: Sequence[Fault], *, inside: str = "") -> None:
    """Raises Refused `validation` for the first of these faults, with all of them as `errors`. `inside` stands before
    the name of each field.
    """
    if found:
        errors = [{"field": inside + field, "message": reason} for field, reason in found]
        raise Refused("validation", found[0][1], errors=errors)


def text_faults(what: str, name: str, reason: str) -> Iterator[Fault]:
    """What is wrong with the name and the reason of a `rule` or a `window`."""
    for field, text, most in (("name", name, MAX_NAME), ("reason", reason, MAX_REASON)):
        if not text:
            yield field, Reason(f"{what}-{field}-missing")
        if len(text) > most:
            yield field, Reason("text-too-long", what=field, most=most)


def place_faults(set_pattern: str, service: str, resource_group: str) -> Iterator[Fault]:
    """What is wrong with the patterns of a place."""
    for field, value in (("set_pattern", set_pattern), ("service", service), ("resource_group", resource_group)):
        if len(value) > MAX_PATTERN:
            yield field, Reason("pattern-too-long", most=MAX_PATTERN)


def _choice_faults(rule: StandingRule) -> Iterator[Fault]:
    if rule.action not in set(Action):
        yield "action", Reason("action-unknown", action=rule.action, known=list(Action))
    elif rule.accepts and Action(rule.action) not in APPROVES:
        yield "accepts", Reason("accepts-without-approving")
    yield from choice_faults([("event_types", [one for one in rule.event_types if _is_misspelt(one, rule)], TYPES)])
    if len(rule.event_types) > MOST_TYPES:
        yield "event_types", Reason("choice-unknown", field="event_types", chosen=rule.event_types[-1], known=TYPES)
    yield from choice_faults([("sources", rule.sources, SOURCES)])
    yield from choice_faults([("accepts", rule.accepts, ACCEPTABLE)])


def _is_misspelt(event_type: str, rule: StandingRule) -> bool:
    """Whether a rule cannot name this type: no name of one, a known one in other letters, or advice to be approved."""
    if event_type in TYPES:
        return False
    if is_advice(event_type):
        return event_type not in ADVICE_TYPES or rule.action in APPROVES
    return not is_unknown(event_type) or not TYPE_NAME.fullmatch(event_type)


def choice_faults(choices: Iterable[tuple[str, Sequence[str], Sequence[str]]]) -> Iterator[Fault]:
    """What was chosen and cannot be: each the name of a field, what was chosen in it, and what there is."""
    for field, chosen, known in choices:
        unknown = next((one for one in chosen if one not in known), None)
        if unknown is not None:
            yield field, Reason("choice-unknown", field=field, chosen=unknown, known=known)


def _limit_faults(rule: StandingRule) -> Iterator[Fault]:
    yield from place_faults(rule.set_pattern, rule.service, rule.resource_group)
    for what, least, most in (
        ("duration", rule.min_duration_seconds, rule.max_duration_seconds),
        ("notice", rule.min_notice_seconds, rule.max_notice_seconds),
    ):
        for side, value in (("min", least), ("max", most)):
            if value is not None and value < 0:
                yield f"{side}_{what}_seconds", Reason("limit-negative", what=what)
            if value is not None and value > MAX_NUMBER:
                yield f"{side}_{what}_seconds", Reason("limit-too-high", what=what, most=MAX_NUMBER)
        if least is not None and most is not None and least > most:
            yield f"max_{what}_seconds", Reason("limits-reversed", what=what, least=least, most=most)


def _time_faults(rule: StandingRule, now: datetime) -> Iterator[Fault]:
    yield from hour_faults(rule.weekdays, rule.time_zone)
    if rule.expires_at is not None and rule.expires_at <= now:
        yield "expires_at", Reason("expiry-past")


def hour_faults(weekdays: Sequence[int], time_zone: str) -> Iterator[Fault]:
    """What is wrong with the days and the time zone of some hours."""
    if any(day not in range(7) for day in weekdays):
        yield "weekdays", Reason("weekday-unknown")
    try:
        zone_of(time_zone)
    except ValueError:
        yield "time_zone", Reason("time-zone-unknown", name=time_zone)
