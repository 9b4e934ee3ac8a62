"""When reconciliation checks a row again, and when quarantined rows are retried."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(hours=1)
# A locked row is not at fault: the next tick tries it again.
HELD_PAUSE = timedelta(seconds=1)


class QuarantineKind(StrEnum):
    """Kinds of quarantined rows: what could not be processed."""

    EVENT = "event"
    RULES = "rules"
    APPROVAL = "approval"
    WAVE = "wave"
    DRILL = "drill"
    CACHE = "cache"
    # Only reports wait for one.
    MACHINE = "machine"
    # These wait without a lock, and only reports do: the rest of a document with many events, and reports beyond their
    # machine's limits (`fleet.domain.intake`).
    DOCUMENT = "document"
    BEYOND = "beyond"


# Kinds of objects for whose lock a report waits.
HELD = (QuarantineKind.EVENT, QuarantineKind.CACHE, QuarantineKind.MACHINE)


def retry_pause(tries: int) -> timedelta:
    """Return the pause before the next retry after this many tries. It doubles each time, from 10 seconds up to an
    hour.
    """
    return min(FIRST_PAUSE * (1 << min(tries - 1, 20)), LONGEST_PAUSE)


# Times of the next check in reconciliation. Too early is harmless, too late is not.

# An event with news is checked by the next tick, whatever its own time.
AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)
# Time alone changes nothing any more.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
# Waiting for something that announces itself by no turn and no entry, as the next poll of a machine that is live.
SOON = timedelta(seconds=2)
# Nothing open goes unseen for longer, whatever was forgotten: between three and five quarters of an hour, so that not
# all come at once.
LONGEST = timedelta(minutes=45)
SPREAD = timedelta(minutes=30)


def first_after(now: datetime, times: Iterable[datetime | None]) -> datetime:
    """Return the first of these times that is later than `now`; `NEVER` if there is none."""
    return min((at for at in times if at is not None and at > now), default=NEVER)


def just_before(at: datetime | None, lead: timedelta) -> datetime | None:
    """Return the time `lead` before `at`; None if `at` is None, or if the result is not representable."""
    try:
        return None if at is None else at - lead
    except OverflowError:
        return None


def at_the_latest(row_id: int, *, now: datetime) -> datetime:
    """Return when to check an open row at the latest, even if nothing is reported about it: in 45 to 75 minutes.

    The row id spreads the checks over this time.
    """
    return now + LONGEST + row_id % 64 * SPREAD / 64
