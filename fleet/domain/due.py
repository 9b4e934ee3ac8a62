"""When reconciling looks at something again. Too early is harmless, too late is not."""

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T", bound=int)

# What has news is looked at by the next tick, whatever its clock says.
AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)
# Time alone changes nothing any more.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
# Waiting for something that announces itself by no turn and no entry, as the next poll of a machine that is live.
SOON = timedelta(seconds=2)


def portion(rows: Sequence[T], *, most: int, now: datetime) -> list[T]:
    """All of these where they are few; else so many, others at each moment, and each of them before long."""
    if len(rows) <= most:
        return list(rows)
    return sorted(random.Random(now.timestamp()).sample(rows, most))  # noqa: S311 - no secret


def first_after(now: datetime, moments: Iterable[datetime | None]) -> datetime:
    """The first of these moments that is still to come."""
    return min((moment for moment in moments if moment is not None and moment > now), default=NEVER)


def before(moment: datetime | None, lead: timedelta) -> datetime | None:
    """So long before a moment that somebody may have stated anyhow; None where the calendar has no such time."""
    try:
        return None if moment is None else moment - lead
    except OverflowError:
        return None
