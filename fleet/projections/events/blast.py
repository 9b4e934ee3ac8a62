"""What an event leaves of its set."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.reason import Reason
from fleet.domain.states import EventStatus, Presence
from fleet.models import Machine, ScheduledEvent
from fleet.models.facts.events import machine_presence, presence_limits
from fleet.projections.refs import plain_name
from fleet.projections.sight import seen


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
    """The blast radius of each event, loaded with its set, by primary key. Two queries."""
    down = taken_by_others(events)
    limits = presence_limits()
    by_set: dict[int, list[tuple[str, Presence]]] = defaultdict(list)
    machines = seen(Machine).filter(availability_set__in={event.availability_set_id for event in events})
    for machine in machines.select_related("presence", "latest_document").defer("compute"):
        presence = machine_presence(machine, now=now, limits=limits)
        by_set[machine.availability_set_id].append((machine.resource_name, presence))
    return {
        event.pk: blast_radius(
            event.resources,
            by_set[event.availability_set_id],
            down=down[event.pk],
            needs=event.availability_set.needs_live,
        )
        for event in events
    }
