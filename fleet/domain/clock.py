"""The database's time, computed in a process from its steady clock, and the offset of the process's own clock.

Processes run on several servers, and each server's clock can be wrong for a while. So no process trusts its own: it
reads the database's clock regularly, and counts on from there by a clock that cannot be set. Pure.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A process whose clock differs by more than this many seconds from the database's neither decides nor sends.
MOST_SKEW_SECONDS = 1.0
# A stored time that is later than now by more than this was written by a wrong clock. Below it, two processes differ
# by the time that their readings took.
AHEAD = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Seconds since 1970 by the database's clock when the steady clock was at zero: at least `offset`, at most `slack`
    more. `at` is the steady clock's time of the reading.
    """

    offset: float
    slack: float
    at: float


class DatabaseClock:
    """The database's clock as one process knows it. All methods may be called from any thread.

    `steady` is seconds of a clock that cannot be set, such as `time.monotonic`; `own` the time of the process's clock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: ClockReading | None = None

    def note(self, shown: datetime, *, asked: float, answered: float) -> None:
        """The database's clock showed this time at some moment between these two of the steady clock."""
        seconds = (shown - EPOCH).total_seconds()
        least, most = seconds - answered, seconds - asked
        with self._lock:
            known = self._reading
            if known is not None and least <= known.offset <= most:
                # A slow answer is less precise than the present reading, so time makes no jump.
                slack = min(known.slack, most - known.offset)
                self._reading = ClockReading(known.offset, slack, answered)
            else:
                self._reading = ClockReading(least, most - least, answered)

    def age(self, steady: float) -> float:
        """Seconds since the last reading; endless before the first, and where the steady clock has gone back."""
        known = self._reading
        return steady - known.at if known is not None and steady >= known.at else float("inf")

    def now(self, *, steady: float, own: datetime) -> datetime:
        """The time, never later than the database's clock; that of the process before the first reading."""
        known = self._reading
        if known is None:
            return own
        # Rounded down to what the database stores.
        return EPOCH + timedelta(microseconds=int((steady + known.offset) * 1_000_000))

    def skew(self, *, steady: float, own: datetime) -> float:
        """Return the seconds by which the process's clock is ahead of the database's, negative where it lags: at least
        this many, whatever the reading took. 0 before the first reading.
        """
        known = self._reading
        if known is None:
            return 0.0
        ahead = (own - EPOCH).total_seconds() - steady - known.offset
        return min(ahead, 0.0) if ahead < known.slack else ahead - known.slack


def at(seconds: float) -> datetime:
    """Return the time this many seconds after the beginning of 1970, or the latest possible one."""
    try:
        return EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def is_ahead(at: datetime | None, *, now: datetime) -> bool:
    """Whether a stored time was written by a clock that was wrong: it lies in the future, where it cannot."""
    return at is not None and at - now > AHEAD


def seconds_since(at: datetime | None, *, now: datetime) -> float:
    """Return the seconds since the stored time of an action. Infinite where there was none, or where its time is in the
    future, as a wrong clock wrote it.
    """
    if at is None or is_ahead(at, now=now):
        return float("inf")
    return max((now - at).total_seconds(), 0.0)
