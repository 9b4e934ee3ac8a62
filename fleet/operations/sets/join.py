"""Merging of sets that turn out to be one, and suffixes that distinguish sets with the same name."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Lower

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.requirements import Requirements
from fleet.domain.sets import PROVISIONAL, with_suffix
from fleet.domain.states import OPEN_EVENTS, Presence
from fleet.domain.timeline import EntryKind, differing
from fleet.models import AvailabilitySet, InventoryMachine, Machine, ScheduledEvent, Sighting
from fleet.models.facts.events import machine_presence
from fleet.models.facts.owners import confirmed_owner
from fleet.operations.events import compute
from fleet.operations.sets import requirements
from fleet.operations.timeline.entries import tell, tell_machine


def tell_apart(*names: str) -> None:
    """Update the suffixes of all sets with these names (in any letter case).

    Call it after a set was created, named or merged. Runs two queries, and one for each changed suffix.
    """
    named = AvailabilitySet.objects.alias(lower=Lower("name")).filter(lower__in=[name.lower() for name in names])
    duplicates: dict[str, list[AvailabilitySet]] = defaultdict(list)
    for row in AvailabilitySet.objects.filter(pk__in=named.values("pk")).order_by("pk"):
        if row.merged_into_id is None and row.kind != PROVISIONAL:
            duplicates[row.name.lower()].append(row)
        elif row.name_suffix:
            AvailabilitySet.objects.filter(pk=row.pk).update(name_suffix="")
    for found in duplicates.values():
        places = [(row.kind, row.resource_group, row.subscription) for row in found]
        for row, suffix in zip(found, with_suffix(places), strict=True):
            if row.name_suffix != suffix:
                AvailabilitySet.objects.filter(pk=row.pk).update(name_suffix=suffix)


# Sets that turn out to be one, and what moves with their machines.


def settle_sets(
    events: list[ScheduledEvent], reporters: Mapping[int, set[int]], *, now: datetime
) -> list[ScheduledEvent]:
    """Merge provisional sets that turn out to be one, and mark sightings by machines of other sets as foreign.

    `events` are locked; `reporters` are the machines (row ids) that list each event. Return the events after that.
    """
    moved = False
    strange = _listed_elsewhere(events, reporters)
    for event in events:
        # Once sets were joined, earlier queries do not count.
        if event.pk not in strange and not moved:
            continue
        reporting = Q(pk__in=reporters.get(event.pk, ()))
        if event.availability_set.kind == PROVISIONAL:
            # Who came before those of this set that had not read the event yet.
            reporting |= Q(sightings__in=Sighting.objects.filter(event=event, foreign=True, gone_at__isnull=True))
        rows = Machine.objects.select_related("availability_set").order_by("pk")
        machines = list(rows.filter(reporting).distinct())
        owner = confirmed_owner(event, machines, now=now)
        if owner is not None:
            event.availability_set = owner
            ScheduledEvent.objects.filter(pk=event.pk).update(availability_set=owner)
            welcome_sightings(owner)
            # Those who listed it in the set without a name, and have nothing to say of it any more.
            machines = list(rows.filter(Q(pk__in=[row.pk for row in machines]) | Q(sightings__event=event)).distinct())
        if all(machine.availability_set_id == event.availability_set_id for machine in machines):
            continue
        joined, foreign = join_for_event(event=event, reporters=machines, now=now)
        moved = moved or joined
        fresh = Sighting.objects.filter(event=event, machine_id__in=foreign, foreign=False)
        strangers = Machine.objects.filter(pk__in=fresh.values("machine_id")).order_by("pk")
        for pk, name in strangers.values_list("pk", "resource_name"):
            tell(EntryKind.FOREIGN_SIGHTING, DRYDOCK, at=now, event_id=event.pk, machine_id=pk, name=name)
        fresh.update(foreign=True)
    return compute.lock(event.pk for event in events) if moved else events


def _listed_elsewhere(events: Collection[ScheduledEvent], reporters: Mapping[int, set[int]]) -> set[int]:
    """Return the events (row ids) that a machine of another set lists or has listed. Runs at most two queries."""
    reporter_ids = set().union(*reporters.values())
    homes = dict(Machine.objects.filter(pk__any=reporter_ids).values_list("pk", "availability_set_id"))
    found = set()
    for event in events:
        own = event.availability_set_id
        if any(homes.get(pk, own) != own for pk in reporters.get(event.pk, ())):
            found.add(event.pk)
    nameless = [event.pk for event in events if event.availability_set.kind == PROVISIONAL]
    if nameless:
        earlier = Sighting.objects.filter(event_id__any=nameless, foreign=True, gone_at__isnull=True)
        found |= set(earlier.values_list("event_id", flat=True))
    return found


def join_for_event(*, event: ScheduledEvent, reporters: list[Machine], now: datetime) -> tuple[bool, set[int]]:
    """Merge the sets of the machines that list this event, if they are one set.

    Only two provisional sets whose live machines all list the same events are merged, the newer into the older. Named
    sets are left to users, because an EventId is no secret. Return whether sets were merged, and the machines (row ids)
    whose sighting remains foreign.
    """
    foreign: set[int] = set()
    home = event.availability_set
    joined: set[int] = set()

    for machine in sorted(reporters, key=lambda m: m.pk):
        other = machine.availability_set
        if other.pk == home.pk or other.pk in joined:
            continue
        if not _are_one(home, other, reporter_ids=[reporter.pk for reporter in reporters], now=now):
            foreign.add(machine.pk)
            continue
        source, target = (other, home) if home.pk < other.pk else (home, other)
        join(source, target, now=now, event_id=event.pk)
        joined.add(source.pk)
        home = target
    return bool(joined), foreign


def _are_one(one: AvailabilitySet, other: AvailabilitySet, *, reporter_ids: Collection[int], now: datetime) -> bool:
    """Return whether two sets are one: both are provisional, in one resource group, and their live machines list the
    same events.

    A machine that copies the events of several sets lists more than each of them, and so does not match.
    """
    if one.kind != PROVISIONAL or other.kind != PROVISIONAL:
        return False
    if any(getattr(one, name).lower() != getattr(other, name).lower() for name in ("subscription", "resource_group")):
        return False
    rows = Machine.objects.filter(availability_set__in=[one, other], revoked_at=None)
    living: dict[int, int] = {
        machine.pk: machine.availability_set_id
        for machine in rows.select_related("presence", "latest_document").defer("compute")
        if machine.pk in reporter_ids or machine_presence(machine, now=now) is Presence.LIVE
    }
    listed: dict[int, set[int]] = {pk: set() for pk in living}
    standing = Sighting.objects.filter(machine__in=living, gone_at__isnull=True, event__drill=False)
    for machine_id, event_id in standing.values_list("machine_id", "event__pk"):
        listed[machine_id].add(event_id)
    same = len(set(map(frozenset, listed.values()))) == 1
    return same and set(living.values()) == {one.pk, other.pk}


def join(
    source: AvailabilitySet,
    target: AvailabilitySet,
    *,
    now: datetime,
    actor: Actor = DRYDOCK,
    event_id: int | None = None,
    stated_by: str = "",
) -> None:
    """Move all machines, events and inventory of one set to another, which gets the stricter requirements of both.

    Timeline entries remain with their set. If Drydock itself merges them, the cause is an event (`event_id`), or the
    machine named `stated_by` that states its set.
    """
    # Locked in the order of their ids, as every caller locks events.
    list(ScheduledEvent.objects.select_for_update().filter(availability_set=source).order_by("pk").values_list("pk"))
    # The stricter of both counts in the set that remains.
    required, sources = Requirements.of(target), Requirements.of(source)
    stricter = required.stricter(sources)
    requirements.keep(source.pk, sources, requirements.home_of(source))
    for name, value in asdict(stricter).items():
        setattr(target, name, value)
    Machine.every.filter(availability_set=source).update(availability_set=target)
    ScheduledEvent.objects.filter(availability_set=source).update(availability_set=target)
    InventoryMachine.objects.filter(availability_set=source).update(availability_set=target)
    AvailabilitySet.objects.filter(merged_into=source).update(merged_into=target)
    AvailabilitySet.objects.filter(pk=source.pk).update(merged_into=target)
    taken = {
        name: getattr(source, name)
        for name in ("service", "runbook", "upgrade_notices", "terminate_notice_seconds")
        if getattr(target, name) in ("", None) and getattr(source, name) not in ("", None)
    }
    if taken or stricter != required:
        AvailabilitySet.objects.filter(pk=target.pk).update(**taken, **asdict(stricter))
    was, became = differing(asdict(required), asdict(stricter))
    welcome_sightings(target)
    tell_apart(source.name)
    tell(
        EntryKind.SET_MERGED,
        actor,
        at=now,
        set_id=target.pk,
        event_id=event_id,
        before={"sets": [source.name, target.name], **was},
        after={"sets": [target.name], **became},
        source_set=source.pk,
        stated_by=stated_by,
    )


def welcome_sightings(home: AvailabilitySet) -> None:
    """Let foreign sightings count whose machine is now in the event's set."""
    rows = Sighting.objects.filter(foreign=True, event__availability_set=home, machine__availability_set=home)
    rows.update(foreign=False)


def bring_events(machine: Machine, home: AvailabilitySet, *, now: datetime) -> None:
    """After a machine moved to the set `home`, move the open events that no remaining machine of its former set has
    listed.

    Otherwise they would stay open, because no machine would end them. `machine` is its row before the move.
    """
    source = machine.availability_set_id
    if source == home.pk:
        return
    staying = Sighting.objects.filter(event=OuterRef("pk"), machine__availability_set=source)
    listed = Sighting.objects.filter(event=OuterRef("pk"), machine=machine)
    here = ScheduledEvent.objects.filter(availability_set=source, status__in=OPEN_EVENTS)
    still_open = here.filter(~Exists(staying), Exists(listed))
    # Those that stay have one witness less.
    compute.lock(here.values_list("pk", flat=True))
    events = list(still_open.select_for_update(of=("self",)).order_by("pk"))
    if events:
        # Whichever actor moves it, its original set's requirements apply until it ends.
        required = replace(Requirements.of(machine.availability_set), min_live=None)
        home_before = requirements.home_of(machine.availability_set)
        requirements.keep(source, required, home_before, event_pks=[event.pk for event in events])
    ScheduledEvent.objects.filter(pk__in=[event.pk for event in events]).update(availability_set=home)
    welcome_sightings(home)
    for event in events:
        to = {"event_id": event.pk, "set_id": home.pk, "set": home.name}
        tell_machine(EntryKind.MACHINE_MOVED, DRYDOCK, machine, now=now, **to, because="event")
