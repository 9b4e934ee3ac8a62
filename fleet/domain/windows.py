"""No-approval windows: hours in which nothing is approved without a reason. Pure: their words, and what is wrong."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time

from fleet.domain.hours import hours_in_words
from fleet.domain.rule_faults import MAX_NAME, MAX_REASON, hour_faults, pattern_faults


@dataclass(frozen=True, slots=True)
class Window:
    """A window as somebody wants it: once (`starts_at`, `ends_at`), or every week. The fields are the model's."""

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


def window_words(window: Window) -> str:
    """When and where it holds, as the end of a sentence."""
    parts = []
    if window.starts_at is not None:
        parts.append(f"from {window.starts_at:%Y-%m-%d %H:%M} UTC")
    if window.ends_at is not None:
        parts.append(f"until {window.ends_at:%Y-%m-%d %H:%M} UTC")
    hours = hours_in_words(
        weekdays=window.weekdays, from_time=window.from_time, until_time=window.until_time, time_zone=window.time_zone
    )
    if hours:
        parts.append(hours)
    places = [
        f"{what} “{pattern}”"
        for what, pattern in (
            ("sets named", window.set_pattern),
            ("the service", window.service),
            ("the resource group", window.resource_group),
        )
        if pattern
    ]
    return f"{' '.join(parts)}, for {', '.join(places) if places else 'every set'}"


def window_faults(window: Window, *, now: datetime) -> Iterator[tuple[str, str]]:
    """What is wrong with a window that somebody wants, as (field, sentence)."""
    if not window.name:
        yield "name", "Give it a name."
    if not window.reason:
        yield "reason", "Say why: whoever wants to approve in these hours reads it."
    for field, most in (("name", MAX_NAME), ("reason", MAX_REASON)):
        if len(getattr(window, field)) > most:
            yield field, f"The {field} is longer than {most:,} characters."
    yield from pattern_faults(window.set_pattern, window.service, window.resource_group)
    yield from hour_faults(window.weekdays, window.time_zone)
    once = window.starts_at is not None or window.ends_at is not None
    weekly = bool(window.weekdays) or window.from_time is not None or window.until_time is not None
    if once and weekly:
        yield "starts_at", "Say either a beginning and an end, or hours of the week, not both."
    if not once and not weekly:
        yield "ends_at", "Say when: a beginning and an end, or weekdays and hours."
    if window.ends_at is not None and window.ends_at <= now:
        yield "ends_at", "The end is past: say a time that is still to come."
    elif window.starts_at is not None and window.ends_at is not None and window.starts_at >= window.ends_at:
        yield "ends_at", "The end has to come after the beginning."
