"""What an event leaves of its set."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Q

from fleet.domain.reason import Reason
from fleet.domain.states import EventStatus, Presence
from fleet.models import AvailabilitySet, Machine, ScheduledEvent
from fleet.projections.counts import counts_by, counts_of, is_live, last_poll
from fleet.projections.refs import PresenceCounts, plain_name
from fleet.projections.sight import seen

NO_MACHINES: tuple[PresenceCounts, Counter[str]] = (PresenceCounts(), Counter())


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """`stay_up` counts live machines of the set that neither Resources names nor an event that is Started now; `total`
    those that are not gone. `needs` is how many live machines the set is said to need; None when nobody said.
    """

    stay_up: int
    total: int
    hit: int
    not_live: int
    needs: int | None = None

    @property
    def too_few(self) -> bool:
        """Whether fewer stay up than the set is said to need."""
        return self.needs is not None and self.stay_up < self.needs

    @property
    def summary(self) -> Reason:
        """Such as `4 of 6 stay up`, or `4 of 6 stay up, it needs 5`."""
        return Reason("blast-radius", stay_up=self.stay_up, total=self.total, needs=self.needs)


def blast_radius(
    resources: Iterable[str],
    machines: Iterable[tuple[str, Presence]],
    *,
    down: Collection[str] = (),
    needs: int | None = None,
) -> BlastRadius:
    """What is left of a set, from (resource name, presence) of its machines; `down` are the plain names of those that
    another event has taken.
    """
    named = {plain_name(name) for name in resources}
    there = [(plain_name(name), presence) for name, presence in machines if presence is not Presence.GONE]
    return BlastRadius(
        stay_up=sum(presence is Presence.LIVE and name not in named and name not in down for name, presence in there),
        total=len(there),
        hit=len(named),
        not_live=sum(presence is not Presence.LIVE for _, presence in there),
        needs=needs,
    )


def taken_by_others(events: Sequence[ScheduledEvent]) -> dict[int, frozenset[str]]:
    """The plain names of the machines that other events of the same set hit which are Started, by primary key. One
    query.
    """
    sets = {event.availability_set_id for event in events}
    started = seen(ScheduledEvent).filter(availability_set__in=sets, status=EventStatus.STARTED.value, drill=False)
    hit: dict[int, dict[int, set[str]]] = defaultdict(dict)
    for pk, set_id, resources in started.values_list("pk", "availability_set", "resources"):
        hit[set_id][pk] = {plain_name(name) for name in resources}
    return {
        event.pk: frozenset(
            name for pk, names in hit[event.availability_set_id].items() if pk != event.pk for name in names
        )
        for event in events
    }


def blast_radii(events: Sequence[ScheduledEvent], *, now: datetime) -> dict[int, BlastRadius]:
    """The blast radius of each event, loaded with its set, by primary key. Two queries, and however large the sets are,
    of their machines only those are read that are named.
    """
    down = taken_by_others(events)
    found = _live_in_sets(events, down, now=now)
    return {
        event.pk: _of_counts(
            event.availability_set, event.resources, *found.get(event.availability_set_id, NO_MACHINES), down[event.pk]
        )
        for event in events
    }


def blast_together(events: Sequence[ScheduledEvent], *, now: datetime) -> dict[int, BlastRadius]:
    """What stays up if all of these events ran at the same time, by set (row id). Two queries."""
    down = taken_by_others(events)
    found = _live_in_sets(events, down, now=now)
    of_set: dict[int, list[ScheduledEvent]] = defaultdict(list)
    for event in events:
        of_set[event.availability_set_id].append(event)
    return {
        set_id: _of_counts(
            together[0].availability_set,
            [name for event in together for name in event.resources],
            *found.get(set_id, NO_MACHINES),
            frozenset().union(*(down[event.pk] for event in together)),
        )
        for set_id, together in of_set.items()
    }


def _live_in_sets(
    events: Sequence[ScheduledEvent], down: Mapping[int, Collection[str]], *, now: datetime
) -> dict[int, tuple[PresenceCounts, Counter[str]]]:
    """For each set (row id) its counts, and which of its live machines are named, by plain name. One query."""
    named = {name for event in events for name in event.resources} | {name for names in down.values() for name in names}
    counted: Any = (
        seen(Machine)
        .filter(availability_set__in={event.availability_set_id for event in events})
        .alias(polled=last_poll())
        .values("availability_set")
        .annotate(
            **counts_by(now=now),
            hit=ArrayAgg("resource_name", filter=is_live(now=now) & Q(resource_name__named=list(named)), default=[]),
        )
        .order_by()
    )
    return {row["availability_set"]: (counts_of(row), Counter(map(plain_name, row["hit"]))) for row in counted}


def _of_counts(
    home: AvailabilitySet, resources: Iterable[str], counts: PresenceCounts, live: Counter[str], down: Collection[str]
) -> BlastRadius:
    """The same as `blast_radius`; `live` are the live machines that any event names, by plain name."""
    named = {plain_name(name) for name in resources}
    return BlastRadius(
        stay_up=counts.live - sum(live[name] for name in named.union(down)),
        total=counts.total,
        hit=len(named),
        not_live=counts.total - counts.live,
        needs=home.needs_live,
    )
