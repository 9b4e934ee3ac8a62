"""Finds the named set to which an event belongs if a machine of a provisional set lists it first.

Machines of one set see the same events. A machine that was installed without stating its set lists the events of a
named set, perhaps before the other machines of that set do. The names in `Resources` show which set it is.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from django.db.models import QuerySet
from django.db.models.functions import Upper

from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import grouped
from fleet.domain.states import Presence
from fleet.models import AvailabilitySet, Machine, ScheduledEvent, Sighting
from fleet.models.facts.events import machine_presence


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
        owners = {one.availability_set_id for name in names for one in _decisive(bearers.get(name.upper(), []), home)}
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
    live = {one.pk for of_name in bearers.values() for one in of_name}
    live |= {one.pk for one in _rows_live(Machine.objects.filter(pk__in=listed, revoked_at=None), now=now)}
    owners = {
        named[machine_id]
        for machine_id, names in listed.items()
        if machine_id in live and any(_first(bearers.get(name, []), named[machine_id], here) for name in names)
    }
    return owners.pop() if len(owners) == 1 else None


def _decisive(bearers: Collection[Machine], home: AvailabilitySet) -> list[Machine]:
    own = [one.pk for one in bearers if one.availability_set_id == home.pk]
    found = []
    for one in bearers:
        named = one.availability_set
        if named.kind == PROVISIONAL or not _may_be_in_one_place(named, home):
            continue
        if not own or (home.subscription and home.resource_group and named.subscription and one.pk < min(own)):
            found.append(one)
    return found


def _first(bearers: Collection[Machine], named: AvailabilitySet, here: AvailabilitySet) -> bool:
    """Return whether the machine of these two sets that enrolled first, which has the lowest `pk`, is of the named
    set.
    """
    homes = {one.pk: one.availability_set_id for one in bearers if one.availability_set_id in (named.pk, here.pk)}
    return bool(homes) and homes[min(homes)] == named.pk


def _may_be_in_one_place(one: AvailabilitySet, other: AvailabilitySet) -> bool:
    """Return whether two sets may be in the same place. A value that only one of them states is no contradiction."""
    pairs = ((one.subscription, other.subscription), (one.resource_group, other.resource_group))
    return all(left.lower() == right.lower() for left, right in pairs if left and right)


def _bearers(names: Collection[str], *, now: datetime) -> dict[str, list[Machine]]:
    """Return the live machines with these names, by the name in upper case."""
    wanted = {name.upper() for name in names}
    rows = Machine.objects.alias(upper=Upper("resource_name")).filter(upper__in=wanted, revoked_at=None)
    return grouped((machine.resource_name.upper(), machine) for machine in _rows_live(rows, now=now))


def _rows_live(rows: QuerySet[Machine], *, now: datetime) -> list[Machine]:
    chosen = rows.select_related("availability_set", "presence", "latest_document").defer("compute")
    return [machine for machine in chosen if machine_presence(machine, now=now) is Presence.LIVE]
