"""Status bar of every page, and summary numbers of the fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.desk import Monitoring, RelayHealth, monitoring_gaps, relay_health
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.models import LastRun, ScheduledEvent
from fleet.projections import blind_spots
from fleet.projections.counts import counts
from fleet.projections.desk.readiness import wrong_clocks
from fleet.projections.refs import PresenceCounts
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class Overview:
    """Summary numbers of the fleet. `last_event_at` is when the newest event was first seen. `without_agent` counts
    inventory machines without an agent. `doubts` are reasons why an empty queue may be wrong.
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
    def expected(self) -> int:
        """Return the number of agents that are not gone plus inventory machines without an agent."""
        return self.presence.total + self.without_agent

    @property
    def all_live(self) -> bool:
        return 0 < self.presence.live == self.expected


def overview(*, now: datetime) -> Overview:
    """Return summary numbers of the fleet. Eight queries."""
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


# Status bar of every page: whether the fleet is watched, and whether approvals would reach Azure.

# Set by annexes, by template: loads the value that the template shows as `item`.
ITEMS: dict[str, Callable[[datetime], Any]] = {}


@dataclass(frozen=True, slots=True)
class StatusBar(Overview):
    """Status bar of a page: the summary numbers, the number of `blind_spots` (None until the first count), and the
    `items` of annexes: the template of each, and the value that it shows.
    """

    blind_spots: int | None
    items: tuple[tuple[str, Any], ...]


def status_bar(*, now: datetime, spots: Callable[[datetime], int | None] = blind_spots.count) -> StatusBar:
    """Return the status bar; `spots` counts blind spots. Eight queries, plus those of `spots` and of the annexes'
    items.
    """
    items = tuple((template, load(now)) for template, load in ITEMS.items())
    return from_row(StatusBar, overview(now=now), blind_spots=spots(now), items=items)
