"""What machines say of themselves after they enrolled."""

from datetime import datetime

from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.models import Entry, Machine
from fleet.operations import sets
from fleet.operations.entries import entry

LABELS = {
    "resource_name": "name",
    "availability_set_id": "set",
    "fault_domain": "fault domain",
    "update_domain": "update domain",
    "zone": "zone",
    "region": "region",
    "size": "size",
    "os_type": "system",
}


def take_instance(machine_id: int, data: wire.InstanceData, *, now: datetime, agent_version: str = "") -> list[Entry]:
    """Bring a machine's row up to its instance metadata; the entries to write."""
    machine = Machine.objects.select_related("availability_set__merged_into").get(pk=machine_id)
    name = data.resource_name.strip() or machine.resource_name
    stated = data.availability_set.strip()
    placed = sets.place_machine(
        machine=machine,
        vm_id=machine.vm_id,
        name=name,
        configured=stated or machine.token_set,
        compute=data.compute,
        now=now,
    )
    values = {
        "resource_name": name,
        "availability_set_id": placed.home.pk,
        "fault_domain": placed.place.fault_domain,
        "update_domain": placed.place.update_domain,
        "zone": placed.place.zone,
        "region": placed.place.region,
        "size": placed.place.size,
        "os_type": placed.place.os_type,
    }
    changes = [LABELS[field] for field, value in values.items() if getattr(machine, field) != value]
    Machine.objects.filter(pk=machine_id).update(
        **values,
        stated_set=stated,
        compute=data.compute,
        agent_version=agent_version[:100] or machine.agent_version,
        set_source=placed.source,
        set_warnings=placed.warnings,
    )
    placed.link(machine_id)
    moved = placed.home.pk != machine.availability_set_id
    brought = sets.bring_events(machine, placed.home, now=now)
    written = (
        placed.written
        + brought
        + sets.note_warnings(machine_id, name, placed.home.pk, machine.set_warnings, placed.warnings, now=now)
    )
    if changes:
        kind = EntryKind.MACHINE_MOVED if moved else EntryKind.MACHINE_CHANGED
        text = f"{name} says that its {', '.join(changes)} changed."
        written.append(
            entry(
                kind,
                text,
                at=now,
                machine_id=machine_id,
                set_id=placed.home.pk,
                actor=machine.resource_name,
                via="agent",
            )
        )
    return written


def place_again(machine_id: int, *, now: datetime) -> list[Entry]:
    """Place a machine anew after an inventory said something else of it; the entries to write."""
    machine = Machine.objects.select_related("availability_set__merged_into").get(pk=machine_id)
    placed = sets.place_machine(
        machine=machine,
        vm_id=machine.vm_id,
        name=machine.resource_name,
        configured=machine.stated_set or machine.token_set,
        compute=machine.compute,
        now=now,
    )
    Machine.objects.filter(pk=machine_id).update(
        availability_set=placed.home, set_source=placed.source, set_warnings=placed.warnings
    )
    placed.link(machine_id)
    written = placed.written + sets.note_warnings(
        machine_id, machine.resource_name, placed.home.pk, machine.set_warnings, placed.warnings, now=now
    )
    # A provisional set that was named has moved as a whole, and has said so.
    if placed.home.pk != machine.availability_set_id and not placed.written:
        written += sets.bring_events(machine, placed.home, now=now)
        text = f"{machine.resource_name} is in “{placed.home.name}” by the imported inventory."
        written.append(
            entry(EntryKind.MACHINE_MOVED, text, at=now, machine_id=machine_id, set_id=placed.home.pk, actor="Drydock")
        )
    return written
