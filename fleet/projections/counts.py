"""Machine counts of the fleet and of sets. They are stored, and counted again for sets that have just changed. Also
machine counts by a reported value.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Greatest

from fleet.domain.desk import RECONCILED_WITHIN
from fleet.domain.states import Presence
from fleet.models import LastRun, Machine, SetCount, StaleSet
from fleet.models.driver import query
from fleet.models.facts.blind_spots import to_judge
from fleet.models.facts.machines import PRESENCE, presence_limits, presence_values
from fleet.projections.machines import agentless
from fleet.projections.refs import PresenceCounts
from fleet.projections.request_cache import cached_in_request
from fleet.projections.visibility import reader_key, sees_set, visible

# Where presence was not reconciled recently, it is computed from the times of all machines.
TURNED = f"""
    SELECT DISTINCT machine.availability_set_id FROM fleet_presencerow AS presence
    JOIN fleet_machine AS machine ON machine.id = presence.machine_id
    WHERE presence.seen IS DISTINCT FROM {PRESENCE} AND machine.revoked_at IS NULL
"""
AHEAD = timedelta(seconds=1)


def changed_sets(*, now: datetime) -> frozenset[int]:
    """Return the row ids of sets that changed after their last evaluation. Cached for the request. Two queries, or
    three if reconciling is overdue.
    """

    def ask() -> frozenset[int]:
        run = visible(LastRun).filter(name=LastRun.RECONCILE).values_list("ran_at", flat=True).first()
        changed = set(visible(StaleSet).order_by().values_list("availability_set", flat=True).distinct())
        if run is None or not -AHEAD <= now - run <= RECONCILED_WITHIN:
            changed |= {set_id for (set_id,) in query(TURNED, **presence_values(now=now)) if sees_set(set_id)}
        return frozenset(changed)

    return cached_in_request(("changed_sets", now, reader_key()), ask)


def stale_sets(*, now: datetime) -> list[int]:
    """Return the row ids of sets that need an evaluation. These are the changed ones, those whose blind spots may have
    changed with time, and those evaluated by an older version. One query more than `changed_sets`.
    """
    due = visible(SetCount).filter(to_judge(now=now))
    return sorted(changed_sets(now=now) | set(due.order_by().values_list("pk", flat=True)))


# Machine counts of the fleet and of each set: stored, or counted again for sets that have just changed.


PRESENCES = [presence.value for presence in Presence]


@dataclass(frozen=True, slots=True)
class SetCounts:
    """Machine counts of one set: machines by presence, and inventory machines without an agent. Also the machines'
    regions.
    """

    presence: PresenceCounts = field(default_factory=PresenceCounts)
    without_agent: int = 0
    regions: tuple[str, ...] = ()


def counts(*, now: datetime) -> tuple[PresenceCounts, int]:
    """Return the machines by presence, and the number of inventory machines without an agent. The stored counts are
    used except for sets that have just changed. Five queries, or six if reconciling is overdue.
    """
    changed = list(changed_sets(now=now))
    stored = visible(SetCount).exclude(availability_set__any=changed)
    sums = stored.aggregate(**{name: Sum(name, default=0) for name in (*PRESENCES, "without_agent")})
    fresh = visible(Machine).filter(availability_set__any=changed).alias(polled=last_poll())
    counted = counts_of(fresh.aggregate(**counts_by(now=now)))
    presence = PresenceCounts(**{name: sums[name] + getattr(counted, name) for name in PRESENCES})
    # Standalone machines belong to no set.
    bare = agentless().filter(Q(availability_set=None) | Q(availability_set__any=changed)).count()
    return presence, sums["without_agent"] + bare


def counts_of_sets(scope: Mapping[str, Any], *, now: datetime) -> dict[int, SetCounts]:
    """Return the counts of sets that have machines, by row id. `scope` is a filter on the `availability_set` of rows.
    Five queries, or six if reconciling is overdue.
    """
    changed = list(changed_sets(now=now))
    stored = visible(SetCount).filter(**scope).exclude(availability_set__any=changed)
    found = {
        set_id: SetCounts(PresenceCounts(**dict(zip(PRESENCES, counted, strict=True))), without_agent, tuple(regions))
        for set_id, without_agent, regions, *counted in stored.values_list("pk", "without_agent", "regions", *PRESENCES)
    }
    bare = agentless().filter(**scope).filter(availability_set__any=changed).order_by()
    missing = dict(bare.values_list("availability_set").annotate(Count("pk")))
    machines = visible(Machine).filter(**scope).filter(availability_set__any=changed).alias(polled=last_poll())
    grouped = machines.values("availability_set").annotate(
        **counts_by(now=now), regions=ArrayAgg("region", distinct=True)
    )
    rows: Any = grouped.order_by()
    for row in rows:
        set_id, regions = row["availability_set"], tuple(filter(None, row["regions"]))
        found[set_id] = SetCounts(counts_of(row), missing.pop(set_id, 0), regions)
    return found | {set_id: SetCounts(without_agent=count) for set_id, count in missing.items()}


def last_poll(machine: str = "") -> Greatest:
    """Return the expression for a machine's last successful poll, as `polled` in `is_live` and `counts_by`. A received
    document counts as a poll.

    `machine` is the lookup path to the machine, such as `machine__`.
    """
    # Postgres ignores NULL in GREATEST.
    return Greatest(f"{machine}presence__last_poll_at", f"{machine}latest_document__at")


def presence_conditions(*, now: datetime, machine: str = "") -> dict[Presence, Q]:
    """Return the query condition of each presence state, for rows with the expression `polled` (see `last_poll`).
    `machine` is the lookup path to the machine, such as `machine__`.

    The conditions must equal `fleet.domain.intake.presence_of`, which a test compares.
    """
    limits, heard = presence_limits(), f"{machine}presence__last_heard_at"
    live, late, gone = (now - timedelta(seconds=age) for age in (limits.live, limits.late, limits.gone))
    after_live, after_late = (Q(**{f"{heard}__gt": at, "polled__gt": at}) for at in (live, late))
    until_live, until_late = (Q(**{f"{heard}__lte": at}) | Q(polled__lte=at) for at in (live, late))
    valid = Q(**{f"{machine}revoked_at": None})
    here = valid & Q(**{f"{heard}__gte": gone})
    return {
        Presence.LIVE: here & after_live,
        Presence.LATE: here & after_late & until_live,
        # A machine that was heard but never polled successfully is silent; with a poll that is too old it is gone.
        Presence.SILENT: here & (Q(polled=None) | (Q(polled__gte=gone) & until_late)),
        Presence.GONE: ~valid | Q(**{f"{heard}__lt": gone}) | (here & Q(polled__lt=gone)),
        Presence.EXPECTED: valid & Q(**{heard: None}),
    }


def is_live(*, now: datetime, machine: str = "") -> Q:
    """Return the query condition that a machine is live (see `presence_conditions`)."""
    return presence_conditions(now=now, machine=machine)[Presence.LIVE]


def with_presences(machines: QuerySet[Machine], *presences: str, now: datetime) -> QuerySet[Machine]:
    """Return the machines with one of these presence states."""
    conditions = presence_conditions(now=now)
    either = Q(*(conditions[Presence(presence)] for presence in presences), _connector=Q.OR)
    return machines.alias(polled=last_poll()).filter(either)


def counts_by(*, now: datetime) -> dict[str, Count]:
    """Return the aggregates that count machines by presence; `counts_of` reads their result."""
    return {each.value: Count("pk", filter=condition) for each, condition in presence_conditions(now=now).items()}


def counts_of(counted: Mapping[str, int]) -> PresenceCounts:
    """Return the presence counts from the result of `counts_by`."""
    return PresenceCounts(**{name: counted[name] for name in PRESENCES})


# Machine counts by a value that machines report, such as their size.

# The columns by the names of counts and filters; the columns of the presence row are NULL without one.
VALUES = {
    "size": "size",
    "region": "region",
    "zone": "zone",
    "agent_version": "agent_version",
    "events_version": "presence__events_version",
    "instance_version": "presence__instance_version",
}
# At most this many values are listed for each name; the machines with other values are counted together.
MOST_VALUES = 20
# At most this many combinations of values are read: a fleet of honest machines has far fewer.
MOST_COMBINATIONS = 5_000


@dataclass(frozen=True, slots=True)
class ValueCount:
    value: Annotated[
        str | None, "As reported; empty if not stated; null for all machines with a value that is not listed."
    ]
    machines: Annotated[int, "How many machines have it."]


@dataclass(frozen=True, slots=True)
class MachineCounts:
    """Numbers of machines by value. Each list has at most `MOST_VALUES` values, the most frequent first; a last row
    with the value None counts the other machines. Values that differ only in case are counted as one.
    """

    machines: Annotated[int, "All machines that match the filter."]
    size: tuple[ValueCount, ...]
    region: tuple[ValueCount, ...]
    zone: tuple[ValueCount, ...]
    agent_version: tuple[ValueCount, ...]
    events_version: Annotated[tuple[ValueCount, ...], "By the api-version for scheduled events."]
    instance_version: Annotated[tuple[ValueCount, ...], "By the api-version for instance metadata."]


def machines_by_value(machines: QuerySet[Machine]) -> MachineCounts:
    """Count these machines by each of `VALUES`. One query that reads all of them, and a second one if they have very
    many combinations of values.
    """
    counted = machines.order_by().values_list(*VALUES.values()).annotate(count=Count("pk")).order_by("-count")
    combinations = list(counted[: MOST_COMBINATIONS + 1])
    listed = combinations[:MOST_COMBINATIONS]
    total = sum(row[-1] for row in listed) if len(combinations) == len(listed) else machines.count()
    found: dict[str, Any] = {}
    for number, name in enumerate(VALUES):
        of_value: Counter[str] = Counter()
        for row in listed:
            of_value[row[number] or ""] += row[-1]
        found[name] = _most_frequent(of_value, total)
    return MachineCounts(machines=total, **found)


def presence_by_version(machines: QuerySet[Machine], *, now: datetime) -> tuple[tuple[str | None, PresenceCounts], ...]:
    """Count these machines by agent version and presence. Each version is listed once, the most frequent first; a last
    row with the version None counts the machines with other versions. One query that reads all of them.
    """
    grouped = machines.alias(polled=last_poll()).order_by().values("agent_version")
    counted = grouped.annotate(machines=Count("pk"), **counts_by(now=now)).order_by("-machines", "agent_version")
    rows: Any = list(counted[:MOST_COMBINATIONS])
    found = [(row["agent_version"], counts_of(row)) for row in rows[:MOST_VALUES]]
    others = {name: sum(row[name] for row in rows[MOST_VALUES:]) for name in PRESENCES}
    return tuple(found) + (((None, counts_of(others)),) if any(others.values()) else ())


def _most_frequent(counted: Counter[str], total: int) -> tuple[ValueCount, ...]:
    """Return the most frequent values, and the rest of the `total` as one row. The most frequent spelling represents
    a value.
    """
    spelled: dict[str, str] = {}
    together: Counter[str] = Counter()
    for value, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        together[spelled.setdefault(value.lower(), value)] += count
    first = sorted(together.items(), key=lambda item: (-item[1], item[0]))[:MOST_VALUES]
    rest = total - sum(count for _, count in first)
    return tuple(ValueCount(*row) for row in first) + ((ValueCount(None, rest),) if rest else ())
