"""How present a machine is, from the two times that count."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.domain.states import Presence


@dataclass(frozen=True, slots=True)
class Limits:
    """Ages in seconds below which a machine is live, late, silent; older is gone."""

    live: float = 60
    late: float = 600
    gone: float = 86400


# Of polls that are farther apart it is not known that there were others between; the trigger of `PollGap` says so, too.
LEAP = timedelta(minutes=16)

# As it is kept in a narrow row.
NUMBERS = {state: number for number, state in enumerate(Presence)}


def presence_of(
    *,
    last_heard_at: datetime | None,
    last_poll_at: datetime | None,
    revoked: bool,
    now: datetime,
    limits: Limits,
) -> Presence:
    """Both times must be fresh: an agent that is heard but reads nothing from Azure is not live.

    A machine that was never heard is `expected`; one that was heard but never had a good poll counts from no time at
    all, so it is silent until its first good answer.
    """
    if revoked:
        return Presence.GONE
    if last_heard_at is None:
        return Presence.EXPECTED
    heard = (now - last_heard_at).total_seconds()
    if heard > limits.gone:
        return Presence.GONE
    if last_poll_at is None:
        return Presence.SILENT
    age = max(heard, (now - last_poll_at).total_seconds())
    if age < limits.live:
        return Presence.LIVE
    if age < limits.late:
        return Presence.LATE
    if age <= limits.gone:
        return Presence.SILENT
    return Presence.GONE
