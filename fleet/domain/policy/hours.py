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


def is_within_hours(
    at: datetime, *, weekdays: Collection[int], from_time: time | None, until_time: time | None, time_zone: str
) -> bool:
    """Return whether a time is within these weekly hours in local time, from `from_time` up to but excluding
    `until_time`.

    No weekdays mean every day, no times the whole day. Hours past midnight belong to the weekday on which they begin.
    When clocks change: hours begin in the first and end in the second of the repeated hours; a time in the skipped hour
    means the moment of the change. Raises ValueError for an unknown time zone.
    """
    zone = zone_of(time_zone)
    today = at.astimezone(zone).date()
    stretches = (_stretch(day, from_time, until_time, zone) for day in _days(today, weekdays, days=1))
    return any(begin <= at < end for begin, end in stretches)


def next_edge(
    at: datetime, *, weekdays: Collection[int], from_time: time | None, until_time: time | None, time_zone: str
) -> datetime | None:
    """Return the next time at which the result of `is_within_hours` may change; None if it never does."""
    if not weekdays and from_time is None and until_time is None:
        return None
    zone = zone_of(time_zone)
    today = at.astimezone(zone).date()
    # Stretches follow one another, so the first edge that lies ahead is the next. There is one within a week.
    stretches = (_stretch(day, from_time, until_time, zone) for day in _days(today, weekdays, days=8))
    return next((edge for stretch in stretches for edge in stretch if edge > at), None)


def _days(today: date, weekdays: Collection[int], *, days: int) -> Iterator[date]:
    """Yield the days that are among the weekdays, from yesterday up to `days` days that begin with today."""
    every = (today + timedelta(days=number) for number in range(-1, days))
    return (day for day in every if not weekdays or day.weekday() in weekdays)


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


class NamesHours(Protocol):
    """An object that applies only in certain weekly hours: a rule or a notification route."""

    @property
    def weekdays(self) -> Collection[int]: ...
    @property
    def from_time(self) -> time | None: ...
    @property
    def until_time(self) -> time | None: ...
    @property
    def time_zone(self) -> str: ...


def in_hours(what: NamesHours, at: datetime) -> bool:
    """Return whether a time is within the hours of a rule or route (see `is_within_hours`)."""
    if not what.weekdays and what.from_time is None and what.until_time is None:
        return True
    return is_within_hours(
        at,
        weekdays=what.weekdays,
        from_time=what.from_time,
        until_time=what.until_time,
        time_zone=what.time_zone,
    )


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
