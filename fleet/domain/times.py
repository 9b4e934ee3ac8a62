"""Times as programs read them (RFC 3339 in UTC with `Z`), and the range of years that Drydock accepts."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")

# What lies outside of these is no time of a fleet. Inside of them every time can be shown in every time zone.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2100, 1, 1, tzinfo=UTC)


def iso(at: datetime, timespec: str = "auto") -> str:
    """Return the time in the form `2026-03-02T14:32:10.123456Z`. `timespec`: see `datetime.isoformat`."""
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def in_bounds(at: datetime) -> datetime | None:
    """Return the time in UTC; None if it is before the year 2000 or after 2099. A time without a zone counts as UTC."""
    try:
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return at if EARLIEST <= at < LATEST else None


def clamped(at: datetime) -> datetime:
    """Return the time in UTC, moved to the nearer bound if it is before the year 2000 or after 2099."""
    if (bounded := in_bounds(at)) is not None:
        return bounded
    return EARLIEST if at.year <= EARLIEST.year else LATEST


def close_together(found: Iterable[T], *, at: Callable[[T], datetime], within: timedelta) -> list[list[T]]:
    """Sort the items by time and group them: each item is at most `within` later than the item before it."""
    groups: list[list[T]] = []
    for one in sorted(found, key=at):
        if groups and at(one) - at(groups[-1][-1]) <= within:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
