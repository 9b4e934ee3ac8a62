"""The simulator's time. Everything else gets `now` as an argument or a `Clock` to ask."""

from __future__ import annotations

import email.utils
import time
from datetime import UTC, datetime, timedelta


class Clock:
    """The machine's own time in UTC, plus whatever it was moved by."""

    def __init__(self) -> None:
        self._moved = timedelta(0)

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC) + self._moved

    def advance(self, seconds: float) -> None:
        self._moved += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        self._moved += at - self.now()


class FrozenClock(Clock):
    """Stands still between two calls of `advance` or `set`; for tests that compare times exactly."""

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
    """`Mon, 11 Apr 2022 22:26:58 GMT`, whatever the locale."""
    return email.utils.format_datetime(at, usegmt=True)


def rfc3339(at: datetime | None) -> str | None:
    """`2022-04-11T22:26:58.000000Z`, or None."""
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
