"""No-approval windows: hours in which nothing is approved without a reason. Pure: what one says, and its faults."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time

from fleet.domain.policy.faults import Fault, hour_faults, place_faults, text_faults
from fleet.domain.policy.values import stated
from fleet.domain.reason import Reason


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


def window_wording(window: Window) -> Reason:
    """When and where it holds."""
    return Reason("window", **stated(window))


def window_faults(window: Window, *, now: datetime) -> Iterator[Fault]:
    """What is wrong with a window that somebody wants."""
    yield from text_faults("window", window.name, window.reason)
    yield from place_faults(window.set_pattern, window.service, window.resource_group)
    yield from hour_faults(window.weekdays, window.time_zone)
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
