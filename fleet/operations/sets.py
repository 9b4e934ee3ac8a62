"""Sets: making them, placing machines, and joining a provisional set with the one it turned out to be."""

from datetime import datetime
from typing import Any

from fleet.domain.entries import EntryKind
from fleet.domain.sets import Place, SetKey, place_of, set_of
from fleet.models import AvailabilitySet, Entry, Machine, ScheduledEvent
from fleet.operations.entries import entry


def ensure_set(key: SetKey, *, now: datetime, service: str = "") -> AvailabilitySet:
    """The set of this key, made if it is new; one that was merged leads to the set it was merged into."""
    found, _ = AvailabilitySet.objects.get_or_create(
        key=key.key,
        defaults={
            "kind": key.kind,
            "name": key.name,
            "subscription": key.subscription,
            "resource_group": key.resource_group,
            "service": service,
            "created_at": now,
        },
    )
    while found.merged_into is not None:
        found = found.merged_into
    return found


def read_tags(compute: dict[str, Any]) -> dict[str, str]:
    """The VM's tags out of `tagsList`; what is no text is left out."""
    listed = compute.get("tagsList")
    if not isinstance(listed, list):
        return {}
    pairs = [(tag.get("name"), tag.get("value")) for tag in listed if isinstance(tag, dict)]
    return {name: value for name, value in pairs if isinstance(name, str) and isinstance(value, str)}


def resolve(*, stated: str, compute: dict[str, Any], vm_id: str, now: datetime) -> tuple[AvailabilitySet, Place]:
    """The set and place that a machine's configuration and instance metadata state. Raises ValueError for a bad
    name.
    """
    service = read_tags(compute).get("drydock:service", "").strip()
    key = set_of(stated=stated, compute=compute, machine_id=vm_id)
    return ensure_set(key, now=now, service=service), place_of(compute)


def join_for_event(*, event: ScheduledEvent, reporters: list[Machine], now: datetime) -> tuple[list[Entry], set[int]]:
    """Machines of other sets list this event: join what is provisional, and name the machines that stay foreign.

    Machines that list one EventId are in one set. A provisional set gives way to the other one; of two provisional sets
    the younger gives way. Returns the entries to write and the row ids of machines whose sighting is foreign, because
    both sets are named.
    """
    written: list[Entry] = []
    foreign: set[int] = set()
    home = event.availability_set
    joined: set[int] = set()
    for machine in sorted(reporters, key=lambda m: m.pk):
        other = machine.availability_set
        if other.pk == home.pk or other.pk in joined:
            continue
        if other.kind == "provisional" and (home.kind != "provisional" or home.pk < other.pk):
            written.append(_merge(other, home, event, now))
            joined.add(other.pk)
        elif home.kind == "provisional":
            written.append(_merge(home, other, event, now))
            joined.add(home.pk)
            home = other
        else:
            foreign.add(machine.pk)
    return written, foreign


def _merge(source: AvailabilitySet, target: AvailabilitySet, event: ScheduledEvent, now: datetime) -> Entry:
    Machine.objects.filter(availability_set=source).update(availability_set=target)
    ScheduledEvent.objects.filter(availability_set=source).update(availability_set=target)
    AvailabilitySet.objects.filter(pk=source.pk).update(merged_into=target)
    return entry(
        EntryKind.SET_MERGED,
        f"“{source.name}” belongs to “{target.name}”: its machine lists the same event.",
        at=now,
        set_id=target.pk,
        event_id=event.pk,
        actor="Drydock",
        source_set=source.pk,
    )
