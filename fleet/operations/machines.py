"""What machines say of themselves after they enrolled."""

from datetime import datetime

from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.domain.sets import place_of
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


def take_instance(machine_id: int, data: wire.InstanceData, *, now: datetime) -> list[Entry]:
    """Bring a machine's row up to its instance metadata; the entries to write. A bad set name leaves a warning."""
    machine = Machine.objects.select_related("availability_set").get(pk=machine_id)
    stated = data.availability_set.strip() or machine.stated_set
    home, warning = machine.availability_set, ""
    try:
        home, _ = sets.resolve(stated=stated, compute=data.compute, vm_id=machine.vm_id, now=now)
    except ValueError as error:
        warning = str(error)
    if home.kind == "provisional":
        # Nothing is stated: where shared events have led this machine is better than that.
        home = machine.availability_set
    place = place_of(data.compute)
    values = {
        "resource_name": data.resource_name.strip() or machine.resource_name,
        "availability_set_id": home.pk,
        "fault_domain": place.fault_domain,
        "update_domain": place.update_domain,
        "zone": place.zone,
        "region": place.region,
        "size": place.size,
        "os_type": place.os_type,
    }
    changes = [LABELS[name] for name, value in values.items() if getattr(machine, name) != value]
    warnings = [*machine.warnings, warning][-5:] if warning and warning not in machine.warnings else machine.warnings
    Machine.objects.filter(pk=machine_id).update(**values, stated_set=stated, compute=data.compute, warnings=warnings)
    if not changes:
        return []
    moved = home.pk != machine.availability_set_id
    kind = EntryKind.MACHINE_MOVED if moved else EntryKind.MACHINE_CHANGED
    text = f"{values['resource_name']} says that its {', '.join(changes)} changed."
    return [entry(kind, text, at=now, machine_id=machine_id, set_id=home.pk, actor=machine.resource_name, via="agent")]
