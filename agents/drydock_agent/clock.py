"""The machine's clock, and the backend's time computed from the last contact."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from drydock_agent.platforms import system

_FRACTION = re.compile(r"\.(\d+)")
# A smaller difference is only drift, or the time between reading the two clocks; the clock was not changed.
STEP_SECONDS = 1.0


def boot() -> str:
    """Return an id that changes with each boot, or an empty string if the system has none."""
    return system.boot_id()


class Clock:
    """Wall clock (aware datetimes in UTC) and monotonic clock in seconds. It is passed as an argument, so that tests
    can replace it.
    """

    boot = boot()

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    def since_boot(self) -> float:
        """Return the seconds since boot, the same in every process. On Linux they include the time in which the machine
        slept.
        """
        return system.since_boot()


@dataclass(slots=True, frozen=True)
class ClockReading:
    """All clocks at the moment when a time was recorded: seconds since boot, wall clock, and the seconds by which the
    backend's clock was ahead of the wall clock (None if unknown).
    """

    boot: str
    since_boot: float
    wall: float
    ahead: float | None = None

    @staticmethod
    def of(clock: Clock, ahead: float | None) -> ClockReading:
        """Read all clocks now. `ahead` is `ServerClock.offset`."""
        return ClockReading(clock.boot, clock.since_boot(), clock.now().timestamp(), ahead)

    @staticmethod
    def from_text(text: str | None) -> ClockReading | None:
        """Parse the JSON of `to_text`. Return None if it is missing or invalid."""
        return None if text is None else ClockReading(*json.loads(text))

    def to_text(self) -> str:
        """Encode the reading as JSON for the spool."""
        return json.dumps([self.boot, self.since_boot, self.wall, self.ahead])

    def step_until(self, later: ClockReading) -> float:
        """Return the seconds by which the wall clock was changed between this reading and a later one, or 0 if this is
        unknown.
        """
        if self.boot and self.boot == later.boot:
            step = (later.wall - self.wall) - (later.since_boot - self.since_boot)
        elif self.ahead is not None and later.ahead is not None:
            step = self.ahead - later.ahead
        else:
            return 0.0
        return step if abs(step) > STEP_SECONDS else 0.0


class ServerClock:
    """The backend's time at the last contact, extrapolated with the monotonic clock. A wrong or changed wall clock of
    this machine therefore has no effect.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contact: tuple[datetime, float] | None = None

    def contact(self, server_time: datetime, at: float) -> None:
        """Record that the backend's clock showed `server_time` when the monotonic clock showed `at`."""
        self._contact = (server_time, at)

    def now(self) -> datetime:
        """Return the backend's time, or the machine's own time before the first contact."""
        if self._contact is None:
            return self._clock.now()
        server_time, at = self._contact
        return server_time + timedelta(seconds=self._clock.monotonic() - at)

    def offset(self) -> float | None:
        """Return the seconds by which the backend's clock is ahead of the machine's, or None before the first
        contact.
        """
        if self._contact is None:
            return None
        return (self.now() - self._clock.now()).total_seconds()


def to_text(at: datetime) -> str:
    """Format a time as RFC 3339 in UTC, with microseconds and `Z`."""
    return at.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: object) -> datetime | None:
    """Parse an RFC 3339 time into an aware datetime, or return None if it is invalid. A time without a zone is taken as
    UTC.
    """
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(_readable(text))
        return at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _readable(text: str) -> str:
    """Convert a time to the notation that Python 3.10 can parse: no `Z`, and six digits for fractions of a second."""
    text = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text, count=1)
    return f"{text[:-1]}+00:00" if text.endswith(("Z", "z")) else text
