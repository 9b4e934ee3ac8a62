"""What is wrong with a rule that somebody wants to have, each in a sentence that says what to do. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from fleet.domain.events import TYPES
from fleet.domain.guards import ACCEPTABLE
from fleet.domain.hours import zone_of
from fleet.domain.rules import APPROVES, Action, Standing

SOURCES = ("Platform", "User")
MAX_NAME, MAX_REASON, MAX_PATTERN, MAX_NUMBER = 200, 2000, 200, 2**31 - 1


def faults(rule: Standing, *, now: datetime) -> list[tuple[str, str]]:
    """What is wrong with a rule that somebody wants to have, as (field, sentence); empty when nothing is."""
    return [*_text_faults(rule), *_choice_faults(rule), *_limit_faults(rule), *_time_faults(rule, now)]


def _text_faults(rule: Standing) -> Iterator[tuple[str, str]]:
    if not rule.name:
        yield "name", "Give it a name."
    if not rule.reason:
        yield "reason", "Say why: whoever reads a decision of this rule will ask."
    for field, most in (("name", MAX_NAME), ("reason", MAX_REASON)):
        if len(getattr(rule, field)) > most:
            yield field, f"The {field} is longer than {most:,} characters."
    yield from pattern_faults(rule.set_pattern, rule.service, rule.resource_group)


def pattern_faults(set_pattern: str, service: str, resource_group: str) -> Iterator[tuple[str, str]]:
    """What is wrong with the patterns of a place."""
    for field, value in (("set_pattern", set_pattern), ("service", service), ("resource_group", resource_group)):
        if len(value) > MAX_PATTERN:
            yield field, f"A pattern may have up to {MAX_PATTERN} characters."


def _choice_faults(rule: Standing) -> Iterator[tuple[str, str]]:
    if rule.action not in set(Action):
        yield "action", f"Choose an action; there is none called “{rule.action}”. There are {', '.join(Action)}."
    elif rule.accepts and Action(rule.action) not in APPROVES:
        yield "accepts", "Only a rule that approves can accept what speaks against it."
    for field, chosen, known, what in (
        ("event_types", rule.event_types, tuple(TYPES), "event type"),
        ("sources", rule.sources, SOURCES, "source"),
        ("accepts", rule.accepts, ACCEPTABLE, "guard that a rule may accept called"),
    ):
        unknown = next((word for word in chosen if word not in known), None)
        if unknown is not None:
            yield field, f"There is no {what} “{unknown}”: choose from {', '.join(known)}."


def _limit_faults(rule: Standing) -> Iterator[tuple[str, str]]:
    for what, least, most in (
        ("duration", rule.min_duration_seconds, rule.max_duration_seconds),
        ("notice", rule.min_notice_seconds, rule.max_notice_seconds),
    ):
        for side, value in (("min", least), ("max", most)):
            if value is not None and value < 0:
                unknown = " An unknown duration has a switch of its own." if what == "duration" else ""
                yield f"{side}_{what}_seconds", f"A {what} is 0 seconds or more.{unknown}"
            if value is not None and value > MAX_NUMBER:
                yield f"{side}_{what}_seconds", f"A {what} of more than {MAX_NUMBER:,} seconds makes no sense."
        if least is not None and most is not None and least > most:
            yield (
                f"max_{what}_seconds",
                f"The limits are reversed: the {what} cannot be {least} s or more and {most} s or less.",
            )


def _time_faults(rule: Standing, now: datetime) -> Iterator[tuple[str, str]]:
    yield from hour_faults(rule.weekdays, rule.time_zone)
    if rule.expires_at is not None and rule.expires_at <= now:
        yield "expires_at", "The expiry is past: say a time that is still to come, or none."


def hour_faults(weekdays: Sequence[int], time_zone: str) -> Iterator[tuple[str, str]]:
    """What is wrong with the days and the time zone of some hours."""
    if any(day not in range(7) for day in weekdays):
        yield "weekdays", "Weekdays are numbers from 0 (Monday) to 6 (Sunday)."
    try:
        zone_of(time_zone)
    except ValueError:
        yield "time_zone", f"There is no time zone “{time_zone}”: use an IANA name such as Europe/Berlin, or UTC."
