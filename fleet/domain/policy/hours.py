"""Hours of a week in a time zone, and the values of rules and no-approval windows."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import UTC, datetime, time, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from fleet.domain.reasons import as_json

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this IANA name. Raises ValueError for a name that is none."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"There is no time zone {name!r}.") from error


def is_within_hours(
    moment: datetime, *, weekdays: Collection[int], from_time: time | None, until_time: time | None, time_zone: str
) -> bool:
    """Whether a moment lies in these hours: local time, `from_time` included, `until_time` not.

    Hours that pass midnight belong to the weekday on which they begin. No weekdays are all of them, no times the whole
    day. Raises ValueError for an unknown time zone.
    """
    local = moment.astimezone(zone_of(time_zone))
    clock = local.time()
    day = local.weekday()
    start, end = from_time or time.min, until_time
    if end is None or end == time.min:
        return clock >= start and _on(day, weekdays)
    if start < end:
        return start <= clock < end and _on(day, weekdays)
    if start == end:
        return _on(day, weekdays)
    if clock >= start:
        return _on(day, weekdays)
    return clock < end and _on((local - timedelta(days=1)).weekday(), weekdays)


class NamesHours(Protocol):
    """Objects that apply in certain hours only: rules and routes."""

    @property
    def weekdays(self) -> Collection[int]: ...
    @property
    def from_time(self) -> time | None: ...
    @property
    def until_time(self) -> time | None: ...
    @property
    def time_zone(self) -> str: ...


def in_hours(what: NamesHours, moment: datetime) -> bool:
    """Whether a moment is in the named hours, as `is_within_hours` defines it."""
    if not what.weekdays and what.from_time is None and what.until_time is None:
        return True
    return is_within_hours(
        moment,
        weekdays=what.weekdays,
        from_time=what.from_time,
        until_time=what.until_time,
        time_zone=what.time_zone,
    )


def next_edge(
    moment: datetime, *, weekdays: Collection[int], from_time: time | None, until_time: time | None, time_zone: str
) -> datetime | None:
    """The first moment after this one at which `within` may say something else; None where it never does."""
    if not weekdays and from_time is None and until_time is None:
        return None
    zone = zone_of(time_zone)
    local = moment.astimezone(zone)
    clocks = {time.min, *(clock for clock in (from_time, until_time) if clock is not None)}
    days = [local.date(), local.date() + timedelta(days=1)]
    edges = [datetime.combine(day, clock, zone).astimezone(UTC) for day in days for clock in clocks]
    first = min(edge for edge in edges if edge > moment)
    if first.astimezone(zone).utcoffset() != local.utcoffset():
        # Clocks are changed until then, at a full quarter of an hour.
        quarter = moment.astimezone(UTC).replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)
        return min(first, quarter + timedelta(minutes=15))
    return first


def _on(day: int, weekdays: Collection[int]) -> bool:
    return not weekdays or day in weekdays


# What people state in a rule or a no-approval window: tidied, and as JSON values.

# Fields that do not select events.
LABELS = (
    "name", "reason", "enabled", "deleted", "rule_id", "position",
    "route_id", "version", "owner_id", "channel_id",
)  # fmt: skip


def is_among(value: str, named: Sequence[str]) -> bool:
    """Whether it is one of these, without case; nothing named is everything."""
    return not named or value.casefold() in {one.casefold() for one in named}


def json_value(value: Any) -> Any:
    """Return the value as JSON values: clock times as `18:00:00`."""
    return value.isoformat() if isinstance(value, time) else as_json(value)


def stated_values(what: Any) -> dict[str, Any]:
    """Return the values of a rule or a window, without its labels, that differ from an empty one."""
    nothing = type(what)()
    values = {field.name: getattr(what, field.name) for field in fields(what) if field.name not in LABELS}
    return {name: json_value(value) for name, value in values.items() if value != getattr(nothing, name)}
