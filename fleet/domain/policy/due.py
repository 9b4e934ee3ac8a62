"""When time alone may change what rules and no-approval windows say of an event."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.due import before, first_after
from fleet.domain.people import lies_in
from fleet.domain.policy.hours import next_edge
from fleet.domain.policy.rules import StandingRule, concerned
from fleet.domain.policy.windows import Window

# Both ends of a notice are included: just after the least one it is none any more.
PAST = timedelta(microseconds=1)


def due_at(facts: EventFacts, rules: Iterable[StandingRule], windows: Iterable[Window], *, now: datetime) -> datetime:
    """When to judge again by these rules an event that nobody has decided."""
    moments = [facts.not_before, *_of_windows(facts, windows, now)]
    for rule in rules:
        if concerned(rule, facts):
            moments += [rule.expires_at, *_of_notice(rule, facts.not_before), _edge(rule, now)]
    return first_after(now, moments)


def windows_due_at(facts: EventFacts, windows: Iterable[Window], *, now: datetime) -> datetime:
    """When the next of these windows opens or closes for the event's set."""
    return first_after(now, _of_windows(facts, windows, now))


def _of_windows(facts: EventFacts, windows: Iterable[Window], now: datetime) -> Iterator[datetime | None]:
    for window in windows:
        there = lies_in(
            facts.place, set_pattern=window.set_pattern, service=window.service, resource_group=window.resource_group
        )
        if there:
            yield from (window.starts_at, window.ends_at, _edge(window, now))


def _of_notice(rule: StandingRule, not_before: datetime | None) -> Iterator[datetime | None]:
    for seconds in (rule.min_notice_seconds, rule.max_notice_seconds):
        if seconds is not None:
            yield before(not_before, timedelta(seconds=seconds))
            yield before(not_before, timedelta(seconds=seconds) - PAST)


def _edge(hours: StandingRule | Window, now: datetime) -> datetime | None:
    return next_edge(
        now,
        weekdays=hours.weekdays,
        from_time=hours.from_time,
        until_time=hours.until_time,
        time_zone=hours.time_zone,
    )
