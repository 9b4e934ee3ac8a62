"""Whether somebody could be told: out of channels, what reached nobody lately, and when the router last looked."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.domain.clock import seconds_since

# The router looks every two seconds, the web process after five.
ROUTED_WITHIN = timedelta(seconds=60)
# What reached nobody is an alarm for so long.
LATELY = timedelta(hours=1)


class TellHealth(StrEnum):
    """From worst to best. `NOBODY`: there is no channel, as in an installation that is new."""

    STANDS_STILL = "stands_still"
    ALL_FAIL = "all_fail"
    UNTOLD = "untold"
    NOBODY = "nobody"
    SOME_FAIL = "some_fail"
    WORKS = "works"


@dataclass(frozen=True, slots=True)
class Telling:
    """`channels` that are switched on, and how many of them fail; `untold` messages that reached nobody lately."""

    channels: int
    failing: int
    untold: int
    routed_at: datetime | None


def tell_health(telling: Telling, *, now: datetime) -> TellHealth:
    """The worst that is so."""
    if not telling.channels:
        return TellHealth.NOBODY
    if seconds_since(telling.routed_at, now=now) > ROUTED_WITHIN.total_seconds():
        return TellHealth.STANDS_STILL
    if telling.failing == telling.channels:
        return TellHealth.ALL_FAIL
    if telling.untold:
        return TellHealth.UNTOLD
    return TellHealth.SOME_FAIL if telling.failing else TellHealth.WORKS
