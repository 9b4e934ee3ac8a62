"""Hours of a week in a time zone, and the values of rules and no-approval windows."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from fleet.domain.reasons import as_json

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with this IANA name; UTC if empty. Raises ValueError for an unknown name."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"There is no time zone {name!r}.") from error


class NamesHours(Protocol):
    """An object that applies only in certain weekly hours: a rule, a no-approval window or a notification route."""

    @property
    def weekdays(self) -> Collection[int]: ...
    @property
    def from_time(self) -> time | None: ...
    @property
    def until_time(self) -> time | None: ...
    @property
    def time_zone(self) -> str: ...


def in_hours(what: NamesHours, at: datetime) -> bool:
    """Return whether a time is within the weekly hours of a rule, window or route in local time, from `from_time` up to
    but excluding `until_time`.

    No weekdays mean every day, no times the whole day. Hours past midnight belong to the weekday on which they begin.
    When clocks change: hours begin in the first and end in the second of the repeated hours; a time in the skipped hour
    means the moment of the change. Raises ValueError for an unknown time zone.
    """
    if _are_always(what):
        return True
    return any(begin <= at < end for begin, end in _stretches(what, at, days=1))


def next_edge(at: datetime, what: NamesHours) -> datetime | None:
    """Return the next time at which the result of `in_hours` may change; None if it never does."""
    if _are_always(what):
        return None
    # Stretches follow one another, so the first edge that lies ahead is the next. There is one within a week.
    return next((edge for stretch in _stretches(what, at, days=8) for edge in stretch if edge > at), None)


def _are_always(what: NamesHours) -> bool:
    return not what.weekdays and what.from_time is None and what.until_time is None


def _stretches(what: NamesHours, at: datetime, *, days: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield when the hours begin and end, for those of the weekdays from yesterday up to `days` days that begin with
    today.
    """
    zone = zone_of(what.time_zone)
    today = at.astimezone(zone).date()
    every = (today + timedelta(days=number) for number in range(-1, days))
    return (
        _stretch(day, what.from_time, what.until_time, zone)
        for day in every
        if not what.weekdays or day.weekday() in what.weekdays
    )


def _stretch(day: date, from_time: time | None, until_time: time | None, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return when the hours of a day begin and end."""
    begin, end = from_time or time.min, until_time or time.min
    if begin == end:
        begin = end = time.min
    last = day if begin < end else day + timedelta(days=1)
    return _instant(day, begin, zone, fold=0), _instant(last, end, zone, fold=1)


def _instant(day: date, clock: time, zone: ZoneInfo, *, fold: int) -> datetime:
    """Return a local time in UTC. `fold` 0 or 1 selects the first or second of two equal local times.

    A skipped local time becomes the moment at which clocks change.
    """
    local = datetime.combine(day, clock, zone).replace(fold=fold)
    found = local.astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return found
    # Clocks are changed between what the time would be before the change and after it, at a full second.
    low, high = sorted(local.replace(microsecond=0, fold=each).astimezone(UTC) for each in (0, 1))
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high


# What people state in a rule or a no-approval window: tidied, and as JSON values.

# Fields that do not select events.
LABELS = (
    "name", "reason", "enabled", "deleted", "rule_id", "position",
    "route_id", "version", "owner_id", "channel_id",
)  # fmt: skip


def is_among(value: str, named: Sequence[str]) -> bool:
    """Return whether the value is one of these, in any letter case. An empty list contains everything."""
    return not named or value.casefold() in {one.casefold() for one in named}


def json_value(value: Any) -> Any:
    """Convert a value to JSON values; a clock time becomes a text such as `18:00:00`."""
    return value.isoformat() if isinstance(value, time) else as_json(value)


def stated_values(what: Any) -> dict[str, Any]:
    """Return the values of a rule or window that differ from the defaults, without its labels."""
    nothing = type(what)()
    values = {field.name: getattr(what, field.name) for field in fields(what) if field.name not in LABELS}
    return {name: json_value(value) for name, value in values.items() if value != getattr(nothing, name)}
