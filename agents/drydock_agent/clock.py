"""The machine's clock, and the backend's clock carried forward from the last contact."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

_FRACTION = re.compile(r"\.(\d+)")
# A smaller difference is no step of a clock, but its drift and the reading of two clocks one after the other.
STEP_SECONDS = 1.0


def boot() -> str:
    """Return an id that changes with each boot; empty on systems other than Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


class Clock:
    """Wall clock (aware, UTC) and monotonic seconds; injected, so that a test can replace both."""

    boot = boot()

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    def since_boot(self) -> float:
        """Seconds of this boot, the same in every process; on Linux also those in which the machine slept."""
        kind = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if kind is None else time.clock_gettime(kind)


@dataclass(slots=True, frozen=True)
class ClockReading:
    """What the clocks showed when a time was recorded: seconds since `boot`, the wall clock, and by how many seconds
    the backend's clock was ahead of it, None where that was not known.
    """

    boot: str
    since_boot: float
    wall: float
    ahead: float | None = None

    @staticmethod
    def of(clock: Clock, ahead: float | None) -> ClockReading:
        """Read the clocks now."""
        return ClockReading(clock.boot, clock.since_boot(), clock.now().timestamp(), ahead)

    @staticmethod
    def from_text(text: str | None) -> ClockReading | None:
        """Return the reading that `to_text` wrote; None where there is none."""
        return None if text is None else ClockReading(*json.loads(text))

    def to_text(self) -> str:
        """Return the reading as JSON, for the spool."""
        return json.dumps([self.boot, self.since_boot, self.wall, self.ahead])

    def step_until(self, later: ClockReading) -> float:
        """Return by how many seconds the wall clock was set until a later reading; 0 where that cannot be known."""
        if self.boot and self.boot == later.boot:
            step = (later.wall - self.wall) - (later.since_boot - self.since_boot)
        elif self.ahead is not None and later.ahead is not None:
            step = self.ahead - later.ahead
        else:
            return 0.0
        return step if abs(step) > STEP_SECONDS else 0.0


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
