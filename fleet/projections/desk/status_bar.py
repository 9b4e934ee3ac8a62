"""Status bar of every page, and the fleet in numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.desk import Monitoring, RelayHealth, monitoring_gaps, relay_health
from fleet.domain.reasons import Reason
from fleet.models import LastRun, ScheduledEvent
from fleet.projections import blind_spots
from fleet.projections.counts import counts
from fleet.projections.desk.readiness import wrong_clocks
from fleet.projections.refs import PresenceCounts
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class Overview:
    """`last_event_at` is when the newest event was first seen. `without_agent` counts machines of an inventory.
    `doubts` say why seeing nothing may mean little.
    """

    presence: PresenceCounts
    without_agent: int
    relay: RelayHealth
    last_event_at: datetime | None
    doubts: tuple[Reason, ...]
    # How many processes of Drydock have a wrong clock.
    wrong_clocks: int
    server_time: datetime

    @property
    def all_live(self) -> bool:
        return 0 < self.presence.live == self.presence.total


def overview(*, now: datetime) -> Overview:
    """Eight queries."""
    real = visible(ScheduledEvent).filter(drill=False)
    newest = real.order_by("-first_seen_at", "-pk").values_list("first_seen_at", flat=True).first()
    presence, without_agent = counts(now=now)
    run = visible(LastRun).filter(name=LastRun.RECONCILE).first()
    watch = Monitoring(
        live=presence.live,
        agents=presence.total,
        ever=presence.all,
        without_agent=without_agent,
        reconciled_at=run.ran_at if run else None,
        reconciled_by=run.via if run else "",
        wrong_clocks=wrong_clocks(now=now),
    )
    return Overview(
        presence=presence,
        without_agent=watch.without_agent,
        relay=relay_health(watch, now=now),
        last_event_at=newest,
        doubts=monitoring_gaps(watch, now=now),
        wrong_clocks=len(watch.wrong_clocks),
        server_time=now,
    )


# What stands in the head of every page: whether the fleet is watched, and whether approvals would reach Azure.

# Of annexes: by template, what loads what it shows as `item`.
ITEMS: dict[str, Callable[[datetime], Any]] = {}


@dataclass(frozen=True, slots=True)
class StatusBar:
    """`expected` agents are those that are not gone, and those that machines of an inventory lack. `sure`: whoever sees
    nothing may rely on it.
    """

    presence: PresenceCounts
    expected: int
    # None while nobody has looked yet.
    blind_spots: int | None
    relay: RelayHealth
    # What annexes add: the template of each, and what it shows.
    items: tuple[tuple[str, Any], ...]
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


def status_bar(*, now: datetime, spots: Callable[[datetime], int | None] = blind_spot_count) -> StatusBar:
    """Eight queries, those of `spots`, and those of the items of annexes."""
    seen = overview(now=now)
    return StatusBar(
        presence=seen.presence,
        expected=seen.presence.total + seen.without_agent,
        blind_spots=spots(now),
        relay=seen.relay,
        items=tuple((template, load(now)) for template, load in ITEMS.items()),
        wrong_clocks=seen.wrong_clocks,
        sure=not seen.doubts,
        counted_at=now,
    )
