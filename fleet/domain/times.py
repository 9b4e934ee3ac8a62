"""The one way to write a time for programs, RFC 3339 in UTC with `Z`; and the years in which a time counts."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")

# What lies outside of these is no time of a fleet. Inside of them every time can be shown in every time zone.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2100, 1, 1, tzinfo=UTC)


def iso(at: datetime, timespec: str = "auto") -> str:
    """`2026-03-02T14:32:10.123456Z`; `timespec` as `datetime.isoformat` takes it."""
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def in_bounds(at: datetime) -> datetime | None:
    """The time in UTC, one without a zone taken as UTC; None before the year 2000 and from 2100 on."""
    try:
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (OverflowError, ValueError):
        return None
    return at if EARLIEST <= at < LATEST else None


def clamped(at: datetime) -> datetime:
    """The time in UTC, or the bound that is nearer."""
    if (bounded := in_bounds(at)) is not None:
        return bounded
    return EARLIEST if at.year <= EARLIEST.year else LATEST


def close_together(found: Iterable[T], *, at: Callable[[T], datetime], within: timedelta) -> list[list[T]]:
    """Return groups by time, the earliest first; each item follows the one before within `within`."""
    groups: list[list[T]] = []
    for one in sorted(found, key=at):
        if groups and at(one) - at(groups[-1][-1]) <= within:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
