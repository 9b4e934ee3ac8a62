"""What stands in the head of every page: whether the fleet is watched, and whether approvals would reach Azure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.desk import RelayHealth
from fleet.projections import blind_spots
from fleet.projections.desk.fleet import overview
from fleet.projections.messages.alarms import TellAlarm, tell_alarm
from fleet.projections.refs import PresenceCounts


@dataclass(frozen=True, slots=True)
class Strip:
    """`expected` agents are those that are not gone, and those that machines of an inventory lack. `sure`: whoever sees
    nothing may rely on it.
    """

    presence: PresenceCounts
    expected: int
    # None while nobody has looked yet.
    blind_spots: int | None
    relay: RelayHealth
    telling: TellAlarm
    # How many processes of Drydock have a wrong clock.
    wrong_clocks: int
    sure: bool
    counted_at: datetime

    @property
    def watched(self) -> bool:
        """Whether every agent that is expected is live; not where there is none."""
        return 0 < self.presence.live == self.expected


def blind_spot_count(now: datetime) -> int:
    """Sixteen queries: what is kept of each set, and what is of none."""
    return blind_spots.count(now=now)


def strip(*, now: datetime, spots: Callable[[datetime], int | None] = blind_spot_count) -> Strip:
    """Twelve queries, and those of `spots`."""
    seen = overview(now=now)
    return Strip(
        presence=seen.presence,
        expected=seen.presence.total + seen.without_agent,
        blind_spots=spots(now),
        relay=seen.relay,
        telling=tell_alarm(now=now),
        wrong_clocks=seen.wrong_clocks,
        sure=not seen.doubts,
        counted_at=now,
    )
