"""No-approval windows: validation, and when rules and windows next change their effect."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.people import lies_in
from fleet.domain.policy.hours import next_edge, stated_values
from fleet.domain.policy.rules import Fault, StandingRule, may_concern
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import first_after, just_before


@dataclass(frozen=True, slots=True)
class Window:
    """A requested no-approval window: once (`starts_at`, `ends_at`) or every week. The fields are those of the
    model.
    """

    name: str = ""
    reason: str = ""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    weekdays: tuple[int, ...] = ()
    from_time: time | None = None
    until_time: time | None = None
    time_zone: str = "UTC"
    set_pattern: str = ""
    service: str = ""
    resource_group: str = ""


def window_wording(window: Window) -> Reason:
    """Return when and where a window applies, as a sentence."""
    return Reason("window", **stated_values(window))


def window_faults(window: Window, *, now: datetime) -> Iterator[Fault]:
    """Yield the faults of a window as a whole. Each field must already be valid."""
    once = window.starts_at is not None or window.ends_at is not None
    weekly = bool(window.weekdays) or window.from_time is not None or window.until_time is not None
    if once and weekly:
        yield "starts_at", Reason("window-once-and-weekly")
    if not once and not weekly:
        yield "ends_at", Reason("window-without-time")
    if window.ends_at is not None and window.ends_at <= now:
        yield "ends_at", Reason("window-end-past")
    elif window.starts_at is not None and window.ends_at is not None and window.starts_at >= window.ends_at:
        yield "ends_at", Reason("window-reversed")


# When time alone may change what rules and no-approval windows say of an event.


# Both ends of a notice are included: just after the least one it is none any more.
PAST = timedelta(microseconds=1)


def due_at(facts: EventFacts, rules: Iterable[StandingRule], windows: Iterable[Window], *, now: datetime) -> datetime:
    """Return when the rules must judge an undecided event again, because hours, notice or windows change."""
    times = [facts.not_before, *_of_windows(facts, windows, now)]
    for rule in rules:
        if may_concern(rule, facts):
            times += [rule.expires_at, *_of_notice(rule, facts.not_before), next_edge(now, rule)]
    return first_after(now, times)


def windows_due_at(facts: EventFacts, windows: Iterable[Window], *, now: datetime) -> datetime:
    """Return when the next of these windows opens or closes for the event's set."""
    return first_after(now, _of_windows(facts, windows, now))


def _of_windows(facts: EventFacts, windows: Iterable[Window], now: datetime) -> Iterator[datetime | None]:
    for window in windows:
        if lies_in(facts.place, window):
            yield from (window.starts_at, window.ends_at, next_edge(now, window))


def _of_notice(rule: StandingRule, not_before: datetime | None) -> Iterator[datetime | None]:
    for seconds in (rule.min_notice_seconds, rule.max_notice_seconds):
        if seconds is not None:
            yield just_before(not_before, timedelta(seconds=seconds))
            yield just_before(not_before, timedelta(seconds=seconds) - PAST)
