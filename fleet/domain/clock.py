"""Estimates the database's time in each process, and measures how far the process's own clock is off.

Processes run on several servers, whose clocks may be wrong. So each process regularly reads the database's clock, and
adds the time that has passed since by a monotonic clock. This module does no I/O.
"""

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
    """One reading of the database's clock, compared with the monotonic clock.

    The difference between both clocks is at least `offset` seconds and at most `offset + slack`, because the query
    takes time. `at` is the monotonic time of the reading.
    """

    offset: float
    slack: float
    at: float


class DatabaseClock:
    """The database's clock as one process estimates it. It is thread-safe.

    Arguments of the methods: `steady` is the monotonic time in seconds (`time.monotonic`), `own` the time of the
    process's own clock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: ClockReading | None = None

    def note(self, shown: datetime, *, asked: float, answered: float) -> None:
        """Record a reading: the database returned the time `shown` for a query between the monotonic times `asked` and
        `answered`.
        """
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
        """Return the seconds since the last reading.

        The result is infinite before the first reading, or if the monotonic clock has gone back.
        """
        known = self._reading
        return steady - known.at if known is not None and steady >= known.at else float("inf")

    def now(self, *, steady: float, own: datetime) -> datetime:
        """Return the estimated time of the database, never later than its real time; `own` before the first reading."""
        known = self._reading
        if known is None:
            return own
        # Rounded down to what the database stores.
        return EPOCH + timedelta(microseconds=int((steady + known.offset) * 1_000_000))

    def skew(self, *, steady: float, own: datetime) -> float:
        """Return by how many seconds the process's clock is ahead of the database's; negative if it is behind.

        The value is the smallest difference that the duration of the reading permits. It is 0 before the first reading.
        """
        known = self._reading
        if known is None:
            return 0.0
        ahead = (own - EPOCH).total_seconds() - steady - known.offset
        return min(ahead, 0.0) if ahead < known.slack else ahead - known.slack


def at(seconds: float) -> datetime:
    """Return the time this many seconds after the beginning of 1970, or the latest possible time if that is
    too late.
    """
    try:
        return EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def is_ahead(at: datetime | None, *, now: datetime) -> bool:
    """Return whether the stored time `at` is in the future, which means that a wrong clock wrote it."""
    return at is not None and at - now > AHEAD


def seconds_since(at: datetime | None, *, now: datetime) -> float:
    """Return the seconds since the stored time `at`.

    The result is infinite if there is no time, or if the time is in the future (see `is_ahead`).
    """
    if at is None or is_ahead(at, now=now):
        return float("inf")
    return max((now - at).total_seconds(), 0.0)
