"""The machine's clock, and the backend's clock carried forward from the last contact."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

_FRACTION = re.compile(r"\.(\d+)")


class Clock:
    """Wall clock (aware, UTC) and monotonic seconds; injected, so that a test can replace both."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()


class ServerClock:
    """The backend's time as of the last contact, carried forward by monotonic seconds.

    A wall clock that is a day off, or is set while the agent runs, changes nothing here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contact: tuple[datetime, float] | None = None

    def contact(self, server_time: datetime, at: float) -> None:
        """Note that the backend's clock showed `server_time` at `at` monotonic seconds."""
        self._contact = (server_time, at)

    def now(self) -> datetime:
        """Return the backend's time; the machine's own before the first contact."""
        if self._contact is None:
            return self._clock.now()
        server_time, at = self._contact
        return server_time + timedelta(seconds=self._clock.monotonic() - at)

    def offset(self) -> float | None:
        """Seconds by which the backend's clock is ahead of the machine's; None before the first contact."""
        if self._contact is None:
            return None
        return (self.now() - self._clock.now()).total_seconds()


def to_text(at: datetime) -> str:
    """RFC 3339 in UTC, with microseconds and `Z`."""
    return at.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: object) -> datetime | None:
    """An aware time from RFC 3339 text; None where it is no such text. A time without a zone is taken as UTC."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(_readable(text))
    except ValueError:
        return None
    return at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)


def _readable(text: str) -> str:
    """Return the time in the notation of Python 3.10: no `Z`, and six digits of a second where there is a fraction."""
    text = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text, count=1)
    return f"{text[:-1]}+00:00" if text.endswith(("Z", "z")) else text
