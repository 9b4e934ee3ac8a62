"""What stands in the head of every page: whether the fleet is watched, and whether approvals would reach Azure."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.desk import RelayHealth
from fleet.projections import blind_spots
from fleet.projections.desk.fleet import overview
from fleet.projections.refs import PresenceCounts


@dataclass(frozen=True, slots=True)
class Strip:
    """`expected` agents are those that are not gone, and those that machines of an inventory lack. `sure`: whoever sees
    nothing may rely on it.
    """

    presence: PresenceCounts
    expected: int
    blind_spots: int
    relay: RelayHealth
    sure: bool
    counted_at: datetime

    @property
    def watched(self) -> bool:
        """Whether every agent that is expected is live; not where there is none."""
        return 0 < self.presence.live == self.expected


def strip(*, now: datetime) -> Strip:
    """Thirteen queries."""
    seen = overview(now=now)
    spots = blind_spots.overview(now=now).spots
    return Strip(
        presence=seen.presence,
        expected=seen.presence.total + seen.without_agent,
        blind_spots=len(spots),
        relay=seen.relay,
        sure=not seen.doubts,
        counted_at=now,
    )
