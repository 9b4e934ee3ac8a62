"""Reasons not to show green: an empty queue means little where no agent watches. Also the worst state of a set."""

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
    """The monitoring of the fleet.

    It counts agents that are live, that should be, and that ever were, and inventory machines without an agent. It also
    has the time and process of the last reconciliation.
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
    """The process that finds due work: Celery, the web processes in its place, or none."""

    WORKS = "works"
    WITHOUT_CELERY = "without_celery"
    STANDS_STILL = "stands_still"


def relay_health(watch: Monitoring, *, now: datetime) -> RelayHealth:
    """Return the health by the time and process of the last reconciliation."""
    if seconds_since(watch.reconciled_at, now=now) > RECONCILED_WITHIN.total_seconds():
        return RelayHealth.STANDS_STILL
    return RelayHealth.WORKS if watch.reconciled_by == BEAT else RelayHealth.WITHOUT_CELERY


def monitoring_gaps(watch: Monitoring, *, now: datetime) -> tuple[Reason, ...]:
    """Return why an empty page is not reliable, the worst reason first; empty where all is well."""
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
    """The state of a set or a cache: the worst known one. Members are ordered from worst to best."""

    DECIDE = "decide"
    UNWATCHED = "unwatched"
    STARTED = "started"
    SCHEDULED = "scheduled"
    PARTLY = "partly"
    LATE = "late"
    LIVE = "live"
    EMPTY = "empty"


WORST_FIRST = {glance: number for number, glance in enumerate(WorstState)}


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The facts of the state: machines by presence, those without an agent, open events by progress, and those of them
    that need a decision (`undecided`).
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
    """The worst of a set."""
    machines = facts.live + facts.late + facts.silent + facts.expected + facts.without_agent
    found = {
        WorstState.DECIDE: facts.undecided,
        WorstState.UNWATCHED: machines and not facts.live,
        WorstState.STARTED: facts.started,
        WorstState.SCHEDULED: facts.scheduled,
        WorstState.PARTLY: facts.silent or facts.expected or facts.without_agent,
        WorstState.LATE: facts.late,
        WorstState.LIVE: facts.live,
    }
    return next((glance for glance, so in found.items() if so), WorstState.EMPTY)


def worst_state_of_cache(*, announced: int, under_way: int, listening: int, unsupported: int) -> WorstState:
    """Return the worst state of a cache: without a listener nothing is heard, whatever is under way."""
    if not listening:
        return WorstState.EMPTY if unsupported else WorstState.UNWATCHED
    if under_way:
        return WorstState.STARTED
    return WorstState.SCHEDULED if announced else WorstState.LIVE


def worst(glances: Iterable[WorstState]) -> WorstState:
    """The worst of several."""
    return min(glances, key=WORST_FIRST.__getitem__, default=WorstState.EMPTY)
