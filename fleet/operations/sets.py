"""Sets: making them, placing machines by what is stated of them, and joining two that turn out to be one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from fleet.domain.entries import EntryKind
from fleet.domain.sets import (
    PROVISIONAL,
    Place,
    SetKey,
    Statements,
    agree,
    disagreement,
    own_set,
    place_of,
    read_statements,
    read_tags,
)
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Entry, InventoryMachine, Machine, ScheduledEvent, Sighting
from fleet.operations.entries import entry

SERVICE_TAG = "drydock:service"


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a machine belongs. `source` says whose word counts (empty: nobody's), `warnings` what is wrong with the
    words, `written` are entries to write, `listed` is the machine's row in the inventory.
    """

    home: AvailabilitySet
    place: Place
    source: str
    warnings: list[str]
    written: list[Entry]
    listed: InventoryMachine | None

    def link(self, machine_id: int) -> None:
        """Note in the inventory that this machine has an agent now, and where it is."""
        row = self.listed
        if row is not None and (row.machine_id, row.availability_set_id) != (machine_id, self.home.pk):
            # A machine that was made anew under its old name leaves the old row.
            InventoryMachine.objects.filter(machine_id=machine_id).exclude(pk=row.pk).update(machine=None)
            InventoryMachine.objects.filter(pk=row.pk).update(machine_id=machine_id, availability_set_id=self.home.pk)


def final(found: AvailabilitySet) -> AvailabilitySet:
    """The set itself, or the one that it was merged into."""
    while found.merged_into is not None:
        found = found.merged_into
    return found


def known_set(key: SetKey) -> AvailabilitySet | None:
    """The set of this key. One without a placement group means the scale set's only one."""
    found = AvailabilitySet.objects.select_related("merged_into").filter(key=key.key).first()
    if found is not None:
        return final(found)
    if key.kind == "scale_set" and not key.placement_group:
        rows = AvailabilitySet.objects.select_related("merged_into").filter(key__startswith=f"{key.key}/")
        sets = {row.pk: row for row in map(final, rows)}
        if len(sets) == 1:
            return next(iter(sets.values()))
    return None


def ensure_set(key: SetKey, *, now: datetime, service: str = "") -> AvailabilitySet:
    """The set of this key, made if it is new; one that was merged leads to the set it was merged into."""
    found = known_set(key)
    if found is None and key.placement_group:
        found = _adopt(key)
    if found is None:
        made, _ = AvailabilitySet.objects.get_or_create(
            key=key.key,
            defaults={
                "kind": key.kind,
                "name": key.name,
                "subscription": key.subscription,
                "resource_group": key.resource_group,
                "service": service,
                "upgrade_notices": _sibling_notices(key) if key.placement_group else None,
                "created_at": now,
            },
        )
        found = final(made)
    if found.key == key.key and found.name.isupper() and not key.name.isupper():
        # Azure writes names in capitals here and there; who spells it otherwise knows better.
        AvailabilitySet.objects.filter(pk=found.pk).update(name=key.name)
        found.name = key.name
    if service and not found.service:
        AvailabilitySet.objects.filter(pk=found.pk).update(service=service)
        found.service = service
    return found


def _without_group(key: SetKey) -> SetKey:
    return SetKey(key.kind, key.name, key.subscription, key.resource_group)


def groups_of(key: SetKey) -> QuerySet[AvailabilitySet]:
    """The sets of one scale set: one for each placement group, and one for what does not state it."""
    whole = _without_group(key).key
    return AvailabilitySet.objects.filter(Q(key=whole) | Q(key__startswith=f"{whole}/"))


def _adopt(key: SetKey) -> AvailabilitySet | None:
    # An inventory names a scale set without its placement group; the first agent says which one it is.
    rows = AvailabilitySet.objects.filter(key=_without_group(key).key, merged_into=None, machines=None)
    pk = rows.values_list("pk", flat=True).first()
    if pk is None:
        return None
    AvailabilitySet.objects.filter(pk=pk).update(key=key.key)
    return AvailabilitySet.objects.get(pk=pk)


def _sibling_notices(key: SetKey) -> bool | None:
    rows = groups_of(key).filter(upgrade_notices__isnull=False).order_by("pk")
    return rows.values_list("upgrade_notices", flat=True).first()


def listed_key(row: InventoryMachine | None) -> SetKey | None:
    """What the inventory says of a machine's set."""
    if row is None or not row.set_kind:
        return None
    return SetKey(row.set_kind, row.set_name, row.set_subscription, row.set_resource_group, row.placement_group)


def _listed(vm_id: str, name: str, compute: dict[str, Any]) -> InventoryMachine | None:
    """By vmId, else by name, resource group and subscription; another machine of that name is not meant."""
    found = InventoryMachine.objects.filter(vm_id=vm_id.lower()).order_by("pk").first()
    group, subscription = compute.get("resourceGroupName"), compute.get("subscriptionId")
    if found is not None or not (isinstance(group, str) and isinstance(subscription, str)):
        return found
    rows = InventoryMachine.objects.filter(
        name__iexact=name, resource_group__iexact=group, subscription__iexact=subscription
    )
    if str(compute.get("vmId") or "").lower() == vm_id.lower():
        rows = rows.filter(vm_id="")
    return rows.order_by("pk").first()


def statements_of(*, configured: str, compute: dict[str, Any], listed: InventoryMachine | None) -> Statements:
    return read_statements(
        configured=configured, compute=compute, inventory=listed_key(listed), set_tag=settings.SET_TAG
    )


def place_machine(
    *, machine: Machine | None, vm_id: str, name: str, configured: str, compute: dict[str, Any], now: datetime
) -> Placed:
    """The set of a machine by what its sources say now; `machine` is its row, if it has one.

    Where nobody says anything it stays where it is: shared events or people may have led it there. A provisional set
    whose machine is named becomes part of the named one, with everybody in it.
    """
    listed = _listed(vm_id, name, compute)
    stated = statements_of(configured=configured, compute=compute, listed=listed)
    here = final(machine.availability_set) if machine is not None else None
    written: list[Entry] = []
    key = stated.key
    if key is None:
        home = here or ensure_set(own_set(compute, vm_id), now=now, service=_service(compute))
    else:
        home = ensure_set(key, now=now, service=_service(compute))
        if here is not None and here.pk != home.pk and here.kind == PROVISIONAL:
            written.append(join(here, home, text=f"{name} states its set: “{here.name}” is “{home.name}”.", now=now))
    return Placed(
        home=home,
        place=place_of(compute),
        source=stated.source.value if stated.source else "",
        warnings=warnings_of(stated, home),
        written=written,
        listed=listed,
    )


def _service(compute: dict[str, Any]) -> str:
    return read_tags(compute).get(SERVICE_TAG, "").strip()


def warnings_of(stated: Statements, home: AvailabilitySet) -> list[str]:
    """What is wrong with the statements, in sentences. Two names of one merged set are no disagreement."""
    warning = disagreement(stated.stated, set_tag=settings.SET_TAG)
    if warning:
        first = stated.stated[0].key
        others = [each.key for each in stated.stated[1:] if not agree(first, each.key)]
        if all(known is not None and known.pk == home.pk for known in map(known_set, others)):
            warning = ""
    return [*stated.problems, *([warning] if warning else [])]


def note_warnings(
    machine_id: int, name: str, set_id: int, before: list[str], after: list[str], *, now: datetime
) -> list[Entry]:
    """Entries of warnings that came up or went away."""
    if before == after:
        return []
    if after:
        kind, text = EntryKind.SET_DISPUTED, f"{name}: {' '.join(after)}"
    else:
        kind, text = EntryKind.SET_AGREED, f"{name}: all sources say the same of its set again."
    return [entry(kind, text, at=now, machine_id=machine_id, set_id=set_id, actor="Drydock")]


def judge_again(machines: Iterable[Machine], *, now: datetime) -> list[Entry]:
    """Compare the sources of these machines anew, after sets were merged; the entries to write."""
    written: list[Entry] = []
    for machine in machines:
        listed = InventoryMachine.objects.filter(machine=machine).first()
        configured = machine.stated_set or machine.token_set
        stated = statements_of(configured=configured, compute=machine.compute, listed=listed)
        warnings = warnings_of(stated, machine.availability_set)
        if warnings != machine.set_warnings:
            Machine.objects.filter(pk=machine.pk).update(set_warnings=warnings)
            written += note_warnings(
                machine.pk, machine.resource_name, machine.availability_set_id, machine.set_warnings, warnings, now=now
            )
    return written


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

    def joins(source: AvailabilitySet, target: AvailabilitySet) -> Entry:
        text = f"“{source.name}” belongs to “{target.name}”: its machine lists the same event."
        return join(source, target, text=text, now=now, event_id=event.pk)

    for machine in sorted(reporters, key=lambda m: m.pk):
        other = machine.availability_set
        if other.pk == home.pk or other.pk in joined:
            continue
        if other.kind == PROVISIONAL and (home.kind != PROVISIONAL or home.pk < other.pk):
            written.append(joins(other, home))
            joined.add(other.pk)
        elif home.kind == PROVISIONAL:
            written.append(joins(home, other))
            joined.add(home.pk)
            home = other
        else:
            foreign.add(machine.pk)
    return written, foreign


def join(
    source: AvailabilitySet,
    target: AvailabilitySet,
    *,
    text: str,
    now: datetime,
    event_id: int | None = None,
    actor: str = "Drydock",
    via: str = "",
    token_name: str = "",
) -> Entry:
    """Move everything of one set into another; the entry to write. Entries keep the set that they were written of."""
    # Locked in the order of their ids, as everybody locks events.
    list(ScheduledEvent.objects.select_for_update().filter(availability_set=source).order_by("pk").values_list("pk"))
    Machine.objects.filter(availability_set=source).update(availability_set=target)
    ScheduledEvent.objects.filter(availability_set=source).update(availability_set=target)
    InventoryMachine.objects.filter(availability_set=source).update(availability_set=target)
    AvailabilitySet.objects.filter(merged_into=source).update(merged_into=target)
    AvailabilitySet.objects.filter(pk=source.pk).update(merged_into=target)
    taken = {
        name: getattr(source, name)
        for name in ("service", "upgrade_notices")
        if getattr(target, name) in ("", None) and getattr(source, name) not in ("", None)
    }
    if taken:
        AvailabilitySet.objects.filter(pk=target.pk).update(**taken)
    welcome_sightings(target)
    return entry(
        EntryKind.SET_MERGED,
        text,
        at=now,
        set_id=target.pk,
        event_id=event_id,
        actor=actor,
        via=via,
        token_name=token_name,
        before={"sets": [source.name, target.name]},
        after={"sets": [target.name]},
        source_set=source.pk,
    )


def welcome_sightings(home: AvailabilitySet) -> None:
    """Sightings by machines that are in the event's set now have a vote."""
    Sighting.objects.filter(foreign=True, event__availability_set=home, machine__availability_set=home).update(
        foreign=False
    )


def bring_events(machine: Machine, home: AvailabilitySet, *, now: datetime) -> list[Entry]:
    """After a machine has moved: open events that nobody who stays behind has a word about go with it; the entries.

    `machine` is its row as it was before; else such an event would stay open for ever, with nobody to end it.
    """
    source = machine.availability_set_id
    if source == home.pk:
        return []
    staying = Sighting.objects.filter(event=OuterRef("pk"), machine__availability_set=source)
    listed = Sighting.objects.filter(event=OuterRef("pk"), machine=machine)
    still_open = ScheduledEvent.objects.filter(~Exists(staying), Exists(listed), availability_set=source).exclude(
        status=EventStatus.ENDED.value
    )
    events = list(still_open.select_for_update(of=("self",)).order_by("pk"))
    ScheduledEvent.objects.filter(pk__in=[event.pk for event in events]).update(availability_set=home)
    welcome_sightings(home)
    text = f"{machine.resource_name} is in “{home.name}” now, and the event with it."
    return [
        entry(EntryKind.MACHINE_MOVED, text, at=now, event_id=event.pk, set_id=home.pk, machine_id=machine.pk)
        for event in events
    ]
