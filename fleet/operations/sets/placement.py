"""Sets: their creation, and the placement of machines by statements."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from fleet.domain.actor import DRYDOCK
from fleet.domain.reasons import as_json
from fleet.domain.sets import (
    MAX_NAME,
    PROVISIONAL,
    Location,
    SetKey,
    SetSource,
    Statements,
    agree,
    disagreement,
    location_of,
    provisional_set_name,
    read_statements,
    read_tags,
)
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, InventoryMachine, JoinToken, Machine
from fleet.operations.sets.join import join, tell_apart
from fleet.operations.timeline.entries import tell

SERVICE_TAG = "drydock:service"


@dataclass(frozen=True, slots=True)
class Placed:
    """The placement of a machine. `source` is the statement that counts (empty: none), `warnings` are faults of the
    statements, `listed` is the machine's row in the inventory. `joined`: its former set is now part of this one.
    """

    home: AvailabilitySet
    location: Location
    source: str
    warnings: list[dict[str, Any]]
    listed: InventoryMachine | None
    joined: bool = False

    @property
    def where(self) -> dict[str, Any]:
        """The columns of the machine's row that say where it is."""
        return asdict(self.location) | {"availability_set_id": self.home.pk}

    def link(self, machine_id: int) -> None:
        """Note in the inventory that this machine has an agent now, and where it is."""
        row = self.listed
        if row is not None and (row.machine_id, row.availability_set_id) != (machine_id, self.home.pk):
            # A machine that was recreated under its old name releases the old row.
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
        made, new = AvailabilitySet.objects.get_or_create(
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
        if new and key.kind != PROVISIONAL:
            tell_apart(key.name)
            made.refresh_from_db(fields=["name_suffix"])
        found = final(made)
    if found.key == key.key and found.name.isupper() and not key.name.isupper():
        # Azure writes names in capitals here and there; who spells it otherwise knows better.
        AvailabilitySet.objects.filter(pk=found.pk).update(name=key.name)
        found.name = key.name
    if service and not found.service:
        AvailabilitySet.objects.filter(pk=found.pk, service="").update(service=service)
        found.refresh_from_db(fields=["service"])
    return found


def groups_of(key: SetKey) -> QuerySet[AvailabilitySet]:
    """The sets of one scale set: one for each placement group, and one for what does not state it."""
    without_group = whole(key).key
    return AvailabilitySet.objects.filter(Q(key=without_group) | Q(key__startswith=f"{without_group}/"))


def _adopt(key: SetKey) -> AvailabilitySet | None:
    # An inventory names a scale set without its placement group; the first agent states it.
    rows = AvailabilitySet.objects.filter(key=whole(key).key, merged_into=None, machines=None)
    pk = rows.values_list("pk", flat=True).first()
    # Of agents of two groups that are first at the same moment one has it.
    if pk is None or not rows.filter(pk=pk).update(key=key.key):
        return None
    return AvailabilitySet.objects.get(pk=pk)


def _sibling_notices(key: SetKey) -> bool | None:
    rows = groups_of(key).filter(upgrade_notices__isnull=False).order_by("pk")
    return rows.values_list("upgrade_notices", flat=True).first()


def listed_key(row: InventoryMachine | None) -> SetKey | None:
    """Return the inventory's statement of a machine's set."""
    if row is None or not row.set_kind:
        return None
    return SetKey(row.set_kind, row.set_name, row.set_subscription, row.set_resource_group, row.placement_group)


def listed_row(vm_id: str, name: str, compute: dict[str, Any]) -> InventoryMachine | None:
    """Return the inventory row with this vmId, else with this name, resource group and subscription."""
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


def whole(stated: SetKey | AvailabilitySet) -> SetKey:
    """Return the key without a placement group: Azure states which group of a scale set a machine is in."""
    return SetKey(stated.kind, stated.name, stated.subscription, stated.resource_group)


def key_of(row: AvailabilitySet) -> SetKey:
    """Return the key that leads to this set."""
    key = whole(row)
    return replace(key, placement_group=row.key[len(key.key) + 1 :])


def configured_set(machine: Machine) -> str:
    """Return the configured set, or else the join token's, unless the machine is confined."""
    return machine.stated_set or (machine.token_set if machine.confined_to is None else "")


def confinement_of(row: Machine | JoinToken) -> SetKey | None:
    """The set to which it confines, or is confined."""
    return SetKey(**row.confined_to) if row.confined_to is not None else None


def statements_of(
    *, configured: str, compute: dict[str, Any], listed: InventoryMachine | None, confined: SetKey | None
) -> Statements:
    return read_statements(
        configured=configured,
        compute=compute,
        inventory=listed_key(listed),
        set_tag=settings.AVAILABILITY_SET_TAG,
        confined=confined,
    )


def place_machine(
    *,
    machine: Machine | None,
    vm_id: str,
    name: str,
    configured: str,
    compute: dict[str, Any],
    confined: SetKey | None,
    now: datetime,
) -> Placed:
    """Return the set of a machine by its sources' statements; `machine` is its row, if it has one. A confined machine
    is in that set, whatever other sources state.

    Without a statement the machine stays in its set: shared events or people may have placed it there. A provisional
    set whose only machine is named becomes part of the named one.
    """
    listed = listed_row(vm_id, name, compute)
    stated = statements_of(configured=configured, compute=compute, listed=listed, confined=confined)
    here = final(machine.availability_set) if machine is not None else None
    joined = False
    key = stated.key
    if key is None:
        home = here or ensure_set(provisional_set_name(compute, vm_id), now=now, service=_service(compute))
    else:
        home = ensure_set(key, now=now, service=_service(compute))
        # No machine decides for others: the other machines of that provisional set stay in it, with their events.
        others = Machine.objects.filter(availability_set=here, revoked_at=None).exclude(vm_id=vm_id)
        alone = not others.exists()
        if here is not None and here.pk != home.pk and here.kind == PROVISIONAL and alone:
            join(here, home, now=now, stated_by=name)
            joined = True
    # Release 0.1.0 cannot show the word confinement; readers that show a machine use `confined_to`.
    source = SetSource.CONFIGURATION if confined is not None else stated.source
    return Placed(
        home=home,
        location=location_of(compute),
        source=source.value if source else "",
        warnings=warnings_of(stated, home),
        listed=listed,
        joined=joined,
    )


def _service(compute: dict[str, Any]) -> str:
    return tidy(read_tags(compute).get(SERVICE_TAG, ""))[:MAX_NAME]


def warnings_of(stated: Statements, home: AvailabilitySet) -> list[dict[str, Any]]:
    """Return the faults of the statements, as a column stores them. Two names of one merged set do not contradict each
    other."""
    found = list(stated.problems)
    warning = disagreement(stated.stated, set_tag=settings.AVAILABILITY_SET_TAG)
    if warning is not None:
        first = stated.stated[0].key
        others = [each.key for each in stated.stated[1:] if not agree(first, each.key)]
        if not all(known is not None and known.pk == home.pk for known in map(known_set, others)):
            found.append(warning)
    return [as_json(reason) for reason in found]


def record_warnings(
    machine_id: int, name: str, set_id: int, before: list[Any], after: list[dict[str, Any]], *, now: datetime
) -> None:
    """Record warnings that are new or no longer apply."""
    if before != after:
        kind = EntryKind.SET_DISPUTED if after else EntryKind.SET_AGREED
        tell(kind, DRYDOCK, at=now, machine_id=machine_id, set_id=set_id, name=name, warnings=after)


def judge_again(machines: Iterable[Machine], *, now: datetime) -> None:
    """Compare the sources of these machines again, after sets were merged."""
    for machine in machines:
        listed = InventoryMachine.objects.filter(machine=machine).first()
        stated = statements_of(
            configured=configured_set(machine),
            compute=machine.compute,
            listed=listed,
            confined=confinement_of(machine),
        )
        warnings = warnings_of(stated, machine.availability_set)
        if warnings != machine.set_warnings:
            Machine.objects.filter(pk=machine.pk).update(set_warnings=warnings)
            record_warnings(
                machine.pk, machine.resource_name, machine.availability_set_id, machine.set_warnings, warnings, now=now
            )
