"""Times of machines, corrected by how far their clocks are off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fleet.domain.times import EARLIEST, in_bounds


def utc(moment: datetime) -> datetime:
    """The moment in UTC; one without a zone is taken as UTC. Raises ValueError when it has no UTC form."""
    if moment.tzinfo is UTC:
        return moment
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None


@dataclass(frozen=True, slots=True)
class Clock:
    """How many seconds a machine's clock is ahead of ours, as measured at one contact."""

    offset: float
    tolerance: float

    @classmethod
    def measured(cls, *, sent_at: datetime, received_at: datetime, tolerance: float) -> Clock:
        return cls((utc(sent_at) - received_at).total_seconds(), tolerance)

    def corrected(self, moment: datetime) -> datetime:
        """The machine's time as our clock would have shown it. Raises ValueError when it has none."""
        moment = utc(moment)
        if abs(self.offset) <= self.tolerance:
            return moment
        try:
            return moment - timedelta(seconds=self.offset)
        except OverflowError:
            raise ValueError("the time is out of range") from None

    def judged(self, moment: datetime, now: datetime) -> tuple[datetime, bool]:
        """The corrected time, at most `now`; and whether it could be right. One that lies ahead of `now`, or before the
        year 2000, could not: then it is `now`.
        """
        try:
            corrected = self.corrected(moment)
        except ValueError:
            return now, False
        if in_bounds(corrected) is None or corrected > now + timedelta(seconds=self.tolerance):
            return now, False
        return min(corrected, now), True

    def not_after(self, moment: datetime | None, now: datetime) -> datetime | None:
        """The corrected time, at most `now`; None for none, or for one before the year 2000 or out of range."""
        if moment is None:
            return None
        try:
            corrected = self.corrected(moment)
        except ValueError:
            return None
        return min(corrected, now) if corrected >= EARLIEST else None
