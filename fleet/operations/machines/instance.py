"""What machines say of themselves after they enrolled."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from drydock_agent import wire

from fleet.domain.actor import DRYDOCK
from fleet.domain.actor import machine as machine_actor
from fleet.domain.machines.instance_data import merged
from fleet.domain.machines.names import machine_name
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Machine, Sighting
from fleet.operations.machines import join_tokens, names
from fleet.operations.sets import placement, requirements
from fleet.operations.sets.join import bring_events
from fleet.operations.timeline.entries import entry


def is_new(machine_id: int, data: wire.InstanceData) -> bool:
    """Whether this differs from what the machine said of itself before. One query."""
    row = Machine.objects.only("resource_name", "called", "stated_set", "compute").get(pk=machine_id)
    stated = machine_name(data.resource_name) or row.called or row.resource_name
    compute = merged(row.compute, data.compute, complete=data.complete)
    return (stated, data.availability_set.strip(), compute) != (
        row.called or row.resource_name,
        row.stated_set,
        row.compute,
    )


def take_instance(machine_id: int, data: wire.InstanceData, *, now: datetime, agent_version: str = "") -> list[Entry]:
    """Bring a machine's row up to its instance metadata; the entries to write. What a partial answer lacks stays."""
    machine = Machine.objects.select_related("availability_set__merged_into").get(pk=machine_id)
    own_name = machine_name(data.resource_name) or machine.called or machine.resource_name
    stated = data.availability_set.strip()
    compute = merged(machine.compute, data.compute, complete=data.complete)
    confined = join_tokens.confined_where_it_is(machine, compute)
    placed = placement.place_machine(
        machine=machine,
        vm_id=machine.vm_id,
        name=own_name,
        configured=stated or (machine.token_set if confined is None else ""),
        compute=compute,
        confined=confined,
        now=now,
    )
    called = names.claim(machine, vm_id=machine.vm_id, stated=own_name, set_id=placed.home.pk, now=now)
    name = called["resource_name"]
    values = placed.where | {"resource_name": name}
    changes = [field for field, value in values.items() if getattr(machine, field) != value]
    version = agent_version[:100] or machine.agent_version
    written = _settle(
        machine,
        placed,
        **called,
        stated_set=stated,
        compute=compute,
        agent_version=version,
        confined_to=confined and asdict(confined),
        now=now,
    )
    if changes:
        moved = placed.home.pk != machine.availability_set_id
        written.append(
            entry(
                EntryKind.MACHINE_MOVED if moved else EntryKind.MACHINE_CHANGED,
                machine_actor(machine.resource_name),
                at=now,
                machine_id=machine_id,
                set_id=placed.home.pk,
                name=name,
                changes=changes,
            )
        )
    return (
        written
        + requirements.left(machine, placed.home, joined=bool(placed.written), now=now)
        + names.taken(machine_id, own_name, was=machine.called, now=now)
    )


def place_as_stated(machine: Machine, *, now: datetime) -> tuple[placement.Placed, list[Entry]]:
    """Place a machine anew by its row, which holds its set; where it is then, and the entries to write."""
    placed = placement.place_machine(
        machine=machine,
        vm_id=machine.vm_id,
        name=machine.resource_name,
        configured=placement.configured_set(machine),
        compute=machine.compute,
        confined=placement.confinement_of(machine),
        now=now,
    )
    return placed, _settle(machine, placed, now=now)


def place_again(machine_id: int, *, now: datetime) -> list[Entry]:
    """Place a machine anew after an inventory said something else of it; the entries to write."""
    machine = Machine.objects.select_related("availability_set__merged_into").get(pk=machine_id)
    placed, written = place_as_stated(machine, now=now)
    # A provisional set that was named has moved as a whole, and has said so.
    if placed.home.pk != machine.availability_set_id and not placed.written:
        written.append(
            entry(
                EntryKind.MACHINE_MOVED,
                DRYDOCK,
                at=now,
                machine_id=machine_id,
                set_id=placed.home.pk,
                name=machine.resource_name,
                set=placed.home.name,
                because="inventory",
            )
        )
    return written + requirements.left(machine, placed.home, joined=bool(placed.written), now=now)


def _settle(machine: Machine, placed: placement.Placed, *, now: datetime, **columns: Any) -> list[Entry]:
    """Write where a machine is; `machine` is its row as it was before. The entries to write."""
    requirements.keep_before_move(machine, placed.home, now=now)
    Machine.objects.filter(pk=machine.pk).update(
        **placed.where, set_source=placed.source, set_warnings=placed.warnings, **columns
    )
    if not columns.get("called", machine.called):
        placed.link(machine.pk)
    brought = bring_events(machine, placed.home, now=now)
    if placed.home.pk != machine.availability_set_id:
        # What it says of events that stay behind has no vote any more.
        left = Sighting.objects.filter(machine=machine, foreign=False, gone_at__isnull=True)
        left.filter(event__availability_set=machine.availability_set_id).update(foreign=True)
    name = columns.get("resource_name", machine.resource_name)
    return [
        *placed.written,
        *brought,
        *placement.note_warnings(machine.pk, name, placed.home.pk, machine.set_warnings, placed.warnings, now=now),
    ]
