"""Finds the named set to which an event belongs if a machine of a provisional set lists it first.

Machines of one set see the same events. A machine that was installed without stating its set lists the events of a
named set, perhaps before the other machines of that set do. The names in `Resources` show which set it is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.db.models.functions import Upper

from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence
from fleet.models import AvailabilitySet, Machine, ScheduledEvent, Sighting
from fleet.models.facts.events import machine_presence, presence_limits


@dataclass(frozen=True, slots=True)
class _Bearer:
    """A live machine with a certain name (`name` in upper case). The machine with the lowest `pk` enrolled first."""

    pk: int
    name: str
    home: AvailabilitySet


def named_owners(resources: Mapping[str, tuple[int, Collection[str]]], *, now: datetime) -> dict[str, int]:
    """Return, by EventId, the named set (row id) to which a new event belongs. Unclear cases are omitted. Runs at most
    two queries.

    `resources` maps each EventId to the machine (row id) that lists it first and to `Resources`. Considered are only
    events from machines of provisional sets. Exactly one named set must have a live machine that `Resources` names. A
    name that also exists in the reporter's own set counts only in the same resource group, where names are unique, and
    if the named set's machine enrolled first.
    """
    reporters = Machine.objects.select_related("availability_set").defer("compute")
    homes = {
        row.pk: row.availability_set
        for row in reporters.filter(
            pk__any={machine_id for machine_id, _ in resources.values()}, availability_set__kind=PROVISIONAL
        )
    }
    asked = {event_id: (homes[pk], names) for event_id, (pk, names) in resources.items() if pk in homes}
    bearers = _bearers({name for _, names in asked.values() for name in names}, now=now) if asked else {}
    found = {}
    for event_id, (home, names) in asked.items():
        owners = {one.home.pk for name in names for one in _decisive(bearers.get(name.upper(), []), home)}
        if len(owners) == 1:
            found[event_id] = owners.pop()
    return found


def confirmed_owner(event: ScheduledEvent, machines: Iterable[Machine], *, now: datetime) -> AvailabilitySet | None:
    """Return the named set to which an event of a provisional set belongs, now that these machines list it; None if
    unclear.

    A live machine of the named set must list the event, and `Resources` must name a live machine of that set. If the
    provisional set has a machine with the same name, the one that enrolled first counts. Runs at most three queries.
    """
    here = event.availability_set
    named = {row.pk: row.availability_set for row in machines if row.availability_set.kind != PROVISIONAL}
    if here.kind != PROVISIONAL or not named:
        return None
    rows = Sighting.objects.filter(event=event, machine__in=named, gone_at__isnull=True)
    listed = {
        machine_id: [name.upper() for name in names]
        for machine_id, names in rows.values_list("machine_id", "resources")
    }
    bearers = _bearers({name for names in listed.values() for name in names}, now=now)
    live = {one.pk for of_name in bearers.values() for one in of_name} | _live(set(listed), now=now)
    owners = {
        named[machine_id]
        for machine_id, names in listed.items()
        if machine_id in live and any(_first(bearers.get(name, []), named[machine_id], here) for name in names)
    }
    return owners.pop() if len(owners) == 1 else None


def _decisive(bearers: Collection[_Bearer], home: AvailabilitySet) -> list[_Bearer]:
    own = [one.pk for one in bearers if one.home.pk == home.pk]
    found = []
    for one in bearers:
        if one.home.kind == PROVISIONAL or not _may_be_in_one_place(one.home, home):
            continue
        if not own or (home.subscription and home.resource_group and one.home.subscription and one.pk < min(own)):
            found.append(one)
    return found


def _first(bearers: Collection[_Bearer], named: AvailabilitySet, here: AvailabilitySet) -> bool:
    first = min((one for one in bearers if one.home.pk in (named.pk, here.pk)), key=lambda one: one.pk, default=None)
    return first is not None and first.home.pk == named.pk


def _may_be_in_one_place(one: AvailabilitySet, other: AvailabilitySet) -> bool:
    """Return whether two sets may be in the same place. A value that only one of them states is no contradiction."""
    pairs = ((one.subscription, other.subscription), (one.resource_group, other.resource_group))
    return all(left.lower() == right.lower() for left, right in pairs if left and right)


def _bearers(names: Collection[str], *, now: datetime) -> dict[str, list[_Bearer]]:
    """Return the live machines with these names, by the name in upper case."""
    wanted = {name.upper() for name in names}
    found: dict[str, list[_Bearer]] = defaultdict(list)
    rows = Machine.objects.alias(upper=Upper("resource_name")).filter(upper__in=wanted, revoked_at=None)
    for machine in _rows_live(rows, now=now):
        found[machine.resource_name.upper()].append(
            _Bearer(machine.pk, machine.resource_name.upper(), machine.availability_set)
        )
    return found


def _live(pks: Collection[int], *, now: datetime) -> set[int]:
    return {machine.pk for machine in _rows_live(Machine.objects.filter(pk__in=pks, revoked_at=None), now=now)}


def _rows_live(rows: QuerySet[Machine], *, now: datetime) -> list[Machine]:
    limits = presence_limits()
    chosen = rows.select_related("availability_set", "presence", "latest_document").defer("compute")
    return [machine for machine in chosen if machine_presence(machine, now=now, limits=limits) is Presence.LIVE]
