"""Rules: standing decisions. Pure: which rule decides an event, what it does about it, and how it is worded."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from enum import StrEnum
from typing import Any

from fleet.domain.conditions import LATER, When
from fleet.domain.guards import ACCEPTABLE, EventFacts, Guard, guards, without
from fleet.domain.hours import hours_in_words, within
from fleet.domain.places import PROVISIONAL, lies_in


class Action(StrEnum):
    """What a rule does about an event that it matches. `leave` ends the search: people decide."""

    APPROVE_NOW = "approve_now"
    APPROVE_WHEN_PREPARED = "approve_when_prepared"
    HOLD = "hold"
    LEAVE = "leave"


ACTION_WORDS: dict[Action, str] = {
    Action.APPROVE_NOW: "Approve now",
    Action.APPROVE_WHEN_PREPARED: "Approve once every machine is prepared",
    Action.HOLD: "Hold",
    Action.LEAVE: "Leave to people",
}
APPROVES: dict[Action, When] = {
    Action.APPROVE_NOW: When.NOW,
    Action.APPROVE_WHEN_PREPARED: When.PREPARED,
}
# What a rule says that it goes past.
ACCEPT_WORDS: dict[str, str] = {
    "lost-for-good": "something is lost for good",
    "not-prepared": "a machine is still preparing",
    "hook-failed": "a prepare hook failed",
    "no-approval-window": "it falls into hours without approvals",
    "service-in-flight": "another event of the service is under way",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A rule as it stands. The fields are those of the model `Rule`; `rule_id` is 0 while it is not saved."""

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


# What people say of a rule; the rest is its place and its life.
SAID = tuple(name for name in Standing.__slots__ if name not in ("enabled", "deleted", "rule_id", "position"))


def changed(rule: Standing, fields: Mapping[str, Any]) -> Standing:
    """The rule with what somebody says of it (of `SAID`): texts tidied, lists in one order, each item once."""
    return replace(rule, **{name: tidied(value) for name, value in fields.items()})


def tidied(value: Any) -> Any:
    """A value as it is kept."""
    if isinstance(value, str):
        return value.replace("\x00", "").strip()
    if isinstance(value, list | tuple | set):
        return tuple(sorted(set(value)))
    return value


def is_in_force(rule: Standing, *, now: datetime) -> bool:
    """Switched on, not expired, not deleted."""
    return rule.enabled and not rule.deleted and (rule.expires_at is None or now < rule.expires_at)


def matching(rule: Standing, facts: EventFacts, *, now: datetime) -> bool:
    """Whether a rule in force speaks of this event. Drills are nobody's: no rule matches them."""
    return (
        is_in_force(rule, now=now)
        and not facts.drill
        and _among(facts.event_type, rule.event_types)
        and _among(facts.source, rule.sources)
        and _takes(rule, facts.duration_seconds)
        and _lies_there(rule, facts)
        and _in_notice(rule, facts.not_before, now)
        and within(
            now,
            weekdays=rule.weekdays,
            from_time=rule.from_time,
            until_time=rule.until_time,
            time_zone=rule.time_zone,
        )
    )


def first_match(rules: Iterable[Standing], facts: EventFacts, *, now: datetime) -> Standing | None:
    """The first of these rules, in their order, that matches: it decides."""
    return next((rule for rule in rules if matching(rule, facts, now=now)), None)


def _among(word: str, words: Sequence[str]) -> bool:
    return not words or word.casefold() in {one.casefold() for one in words}


def _takes(rule: Standing, seconds: int | None) -> bool:
    if rule.min_duration_seconds is None and rule.max_duration_seconds is None:
        return True
    # -1 is Azure's word for unknown: it may be an hour.
    if seconds is None or seconds < 0:
        return rule.unknown_duration
    return _between(seconds, rule.min_duration_seconds, rule.max_duration_seconds)


def _between(value: float, least: int | None, most: int | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _lies_there(rule: Standing, facts: EventFacts) -> bool:
    if not (rule.set_pattern or rule.service or rule.resource_group):
        return True
    # Where nobody has said yet what a machine belongs to, a rule for certain places has no word.
    return facts.set_kind != PROVISIONAL and lies_in(
        facts.place, set_pattern=rule.set_pattern, service=rule.service, resource_group=rule.resource_group
    )


def _in_notice(rule: Standing, not_before: datetime | None, now: datetime) -> bool:
    if rule.min_notice_seconds is None and rule.max_notice_seconds is None:
        return True
    if not_before is None:
        return False
    return _between((not_before - now).total_seconds(), rule.min_notice_seconds, rule.max_notice_seconds)


class Does(StrEnum):
    """What the rules do about an event: `guarded` means that a rule would approve, and a guard stands in the way."""

    NOTHING = "nothing"
    APPROVE = "approve"
    HOLD = "hold"
    LEAVE = "leave"
    GUARDED = "guarded"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the first rule that matches does about an event, and the guards against it that it does not accept."""

    does: Does
    rule: Standing | None = None
    against: tuple[Guard, ...] = ()

    @property
    def acts(self) -> bool:
        return self.does in (Does.APPROVE, Does.HOLD)


def verdict(rules: Iterable[Standing], facts: EventFacts, *, now: datetime) -> Verdict:
    """What these rules, in their order, do about an event that nobody has decided or held."""
    rule = first_match(rules, facts, now=now)
    if rule is None:
        return Verdict(Does.NOTHING)
    action = Action(rule.action)
    if action not in APPROVES:
        return Verdict(Does.HOLD if action is Action.HOLD else Does.LEAVE, rule)
    later = LATER.get(APPROVES[action], ())
    found = [guard for guard in guards(facts, now=now) if guard.code not in later]
    against = tuple(without(found, accepted(rule)))
    return Verdict(Does.GUARDED if against else Does.APPROVE, rule, against)


def accepted(rule: Standing) -> dict[str, str]:
    """The reasons that a rule gives in advance, by the code of the guard: what `overrides` holds."""
    return {code: rule.reason for code in rule.accepts if code in ACCEPTABLE}


def wording(rule: Standing) -> str:
    """The whole rule in one sentence, as it is kept with each of its decisions."""
    types = f"{_one_of(rule.event_types)} events" if rule.event_types else "every event"
    parts = [types, *_conditions(rule)]
    text = f"{ACTION_WORDS[Action(rule.action)]}: {', '.join(parts)}"
    past = [ACCEPT_WORDS[code] for code in ACCEPTABLE if code in rule.accepts]
    if past:
        text += f"; even if {_one_of(past)}"
    if rule.expires_at is not None:
        text += f"; until {rule.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"{text}."


def _conditions(rule: Standing) -> Iterator[str]:
    if rule.sources:
        yield f"with source {_one_of(rule.sources)}"
    duration = _limits(rule.min_duration_seconds, rule.max_duration_seconds)
    if duration:
        unknown = ", or for an unknown time" if rule.unknown_duration else ""
        yield f"announced to last {duration}{unknown}"
    if rule.set_pattern:
        yield f"in sets named “{rule.set_pattern}”"
    if rule.service:
        yield f"of the service “{rule.service}”"
    if rule.resource_group:
        yield f"in the resource group “{rule.resource_group}”"
    notice = _limits(rule.min_notice_seconds, rule.max_notice_seconds)
    if notice:
        yield f"with {notice} left until NotBefore"
    hours = hours_in_words(
        weekdays=rule.weekdays, from_time=rule.from_time, until_time=rule.until_time, time_zone=rule.time_zone
    )
    if hours:
        yield f"on {hours}"


def _one_of(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _limits(least: int | None, most: int | None) -> str:
    if least is not None and most is not None:
        return _span(most) if least == most else f"{_span(least)} to {_span(most)}"
    if least is not None:
        return f"at least {_span(least)}"
    return f"at most {_span(most)}" if most is not None else ""


def _span(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
