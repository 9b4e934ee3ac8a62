"""The simulator's clock. Other modules receive the time `now` or a `Clock` as an argument."""

from __future__ import annotations

import email.utils
import time
from datetime import UTC, datetime, timedelta


class Clock:
    """The machine's time in UTC, plus the time by which the clock was moved."""

    def __init__(self) -> None:
        self._moved = timedelta(0)

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC) + self._moved

    def advance(self, seconds: float) -> None:
        self._moved += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        self._moved += at - self.now()


class FrozenClock(Clock):
    """Clock that changes only through `advance` and `set`, for tests that compare exact times."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self._at = at

    def now(self) -> datetime:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        self._at = at


def rfc1123(at: datetime) -> str:
    """Format a time as `Mon, 11 Apr 2022 22:26:58 GMT`, independently of the locale."""
    return email.utils.format_datetime(at, usegmt=True)


def rfc3339(at: datetime | None) -> str | None:
    """Format a time as `2022-04-11T22:26:58.000000Z`. None stays None."""
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
