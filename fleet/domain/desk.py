"""Gaps in the monitoring, because an empty queue proves little if no agent is live; and the worst state of a set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.domain.clock import seconds_since
from fleet.domain.reasons import Reason

# Reconciling is due every two seconds, by Celery's beat; a web process steps in after five.
RECONCILED_WITHIN = timedelta(seconds=15)
BEAT = "beat"
# The most processes with a wrong clock that are named.
MOST_NAMED = 5
# Lists whose filters can be kept under a name, as pages are called, and how many a person may keep.
LISTS = ("fleet", "sets", "machines", "caches", "events", "timeline", "audit")
MOST_VIEWS = 100


@dataclass(frozen=True, slots=True)
class Monitoring:
    """Numbers about the monitoring of the fleet.

    `live`: live agents; `agents`: enrolled agents that should be live; `ever`: agents that were ever enrolled;
    `without_agent`: machines of the inventory without an agent. `reconciled_at` and `reconciled_by`: time and process
    of the last reconciliation.
    """

    live: int
    agents: int
    ever: int
    without_agent: int
    reconciled_at: datetime | None
    reconciled_by: str
    # By process, the seconds by which its clock is ahead (negative: behind), where that is too much.
    wrong_clocks: Mapping[str, float] = field(default_factory=dict, hash=False)


class RelayHealth(StrEnum):
    """Health of reconciliation: Celery runs it, the web processes run it as a fallback, or it has stopped."""

    WORKS = "works"
    WITHOUT_CELERY = "without_celery"
    STANDS_STILL = "stands_still"


def relay_health(watch: Monitoring, *, now: datetime) -> RelayHealth:
    """Return the health of reconciliation, from the time and process of the last run."""
    if seconds_since(watch.reconciled_at, now=now) > RECONCILED_WITHIN.total_seconds():
        return RelayHealth.STANDS_STILL
    return RelayHealth.WORKS if watch.reconciled_by == BEAT else RelayHealth.WITHOUT_CELERY


def monitoring_gaps(watch: Monitoring, *, now: datetime) -> tuple[Reason, ...]:
    """Return the reasons why an empty page would not be reliable, the worst first. There are none if monitoring is
    complete.
    """
    found = []
    if not watch.ever:
        found.append(Reason("no-agents"))
    elif not watch.live:
        found.append(Reason("no-live-agents", count=watch.ever))
    elif watch.live < watch.agents:
        found.append(Reason("agents-missing", count=watch.agents - watch.live))
    if watch.without_agent:
        found.append(Reason("machines-without-agents", count=watch.without_agent))
    health = relay_health(watch, now=now)
    if health is RelayHealth.STANDS_STILL:
        found.append(Reason("nobody-reconciles", at=watch.reconciled_at))
    elif health is RelayHealth.WITHOUT_CELERY:
        found.append(Reason("celery-is-away"))
    if watch.wrong_clocks:
        names, seconds = sorted(watch.wrong_clocks), max(abs(skew) for skew in watch.wrong_clocks.values())
        found.append(Reason("clocks-wrong", count=len(names), names=names[:MOST_NAMED], seconds=round(seconds)))
    return tuple(found)


class WorstState(StrEnum):
    """State of a set on the map: the worst that applies, or the worst combination. Members are ordered from worst to
    best.
    """

    DECIDE_UNWATCHED = "decide_unwatched"
    DECIDE = "decide"
    UNWATCHED = "unwatched"
    STARTED = "started"
    SCHEDULED = "scheduled"
    PARTLY = "partly"
    LATE = "late"
    LIVE = "live"
    EMPTY = "empty"


class CacheState(StrEnum):
    """State of a cache on the map: the worst that applies. A value is as severe as the same value of `WorstState`."""

    UNWATCHED = "unwatched"
    STARTED = "started"
    SCHEDULED = "scheduled"
    LIVE = "live"
    EMPTY = "empty"


# Rank of the value of each state, the worst first.
WORST_FIRST: dict[str, int] = {state.value: rank for rank, state in enumerate(WorstState)}


@dataclass(frozen=True, slots=True)
class StateFacts:
    """Numbers from which the state of a set is computed.

    `live` to `expected` count machines by presence, `without_agent` machines of the inventory without an agent.
    `started` and `scheduled` count open events; `undecided` those that need a decision.
    """

    live: int = 0
    late: int = 0
    silent: int = 0
    expected: int = 0
    without_agent: int = 0
    undecided: int = 0
    started: int = 0
    scheduled: int = 0


def worst_state_of_set(facts: StateFacts) -> WorstState:
    """Return the worst state that applies to a set. An undecided event without a live agent is worse than each alone,
    because no agent can send an approval.
    """
    machines = facts.live + facts.late + facts.silent + facts.expected + facts.without_agent
    found = {
        WorstState.DECIDE_UNWATCHED: facts.undecided and not facts.live,
        WorstState.DECIDE: facts.undecided,
        WorstState.UNWATCHED: machines and not facts.live,
        WorstState.STARTED: facts.started,
        WorstState.SCHEDULED: facts.scheduled,
        WorstState.PARTLY: facts.silent or facts.expected or facts.without_agent,
        WorstState.LATE: facts.late,
        WorstState.LIVE: facts.live,
    }
    return next((glance for glance, so in found.items() if so), WorstState.EMPTY)


def worst_state_of_cache(*, announced: int, under_way: int, listening: int, unsupported: int) -> CacheState:
    """Return the worst state that applies to a cache. Without a listener it is unwatched or empty, also during a
    maintenance.

    `announced` and `under_way` count maintenances, `listening` and `unsupported` the agents of the cache.
    """
    if not listening:
        return CacheState.EMPTY if unsupported else CacheState.UNWATCHED
    if under_way:
        return CacheState.STARTED
    return CacheState.SCHEDULED if announced else CacheState.LIVE


def worst(states: Iterable[WorstState | CacheState]) -> WorstState:
    """Return the worst of several states; `EMPTY` if there are none."""
    values = {state.value for state in states}
    return next((state for state in WorstState if state.value in values), WorstState.EMPTY)
