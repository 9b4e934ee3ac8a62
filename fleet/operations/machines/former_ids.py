"""Machines that enrolled with a made-up id while Azure gave them no `vmId`, and have one now.

The key or credential of the made-up id proves that both are one machine; a join token or an id proves nothing. The row
of the made-up id becomes that of the `vmId`. Where that has a row of its own, it takes over what is open, and the other
row ends.
"""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK
from fleet.domain.machines.entrance import Proof
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import OPEN_EVENTS, OPEN_ORDERS
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Entry, Machine, Preparation, ScheduledEvent, Sighting
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.machines import admissions, unused_keys
from fleet.operations.orders import advance
from fleet.operations.sets.join import bring_events, join, welcome_sightings
from fleet.operations.timeline.entries import entry, write

OPEN = [state.value for state in OPEN_EVENTS]


def proved(request: wire.EnrolRequest, proof: Proof, *, vm_id: str, now: datetime) -> Machine | None:
    """Lock and return the machine as which the caller enrolled before; None where it proves none.

    A machine whose own metadata has stated its `vmId`, or for which Azure has vouched, had no made-up id.
    """
    former_id = request.former_id.strip().lower()
    if not former_id or former_id == vm_id or request.machine_id_source != "imds":
        return None
    rows = Machine.objects.select_for_update(of=("self",)).select_related("availability_set__merged_into")
    row = rows.filter(vm_id=former_id).first()
    if row is None or row.attested_at is not None or str(row.compute.get("vmId") or "").lower() == former_id:
        return None
    owner = unused_keys.owner(row, request, proof, now=now)
    # Whoever never had a key of it, as after a lost answer, has nothing to prove it by.
    return row if owner is not None and owner.proved_by else None


def rename(former: Machine, vm_id: str, *, now: datetime) -> None:
    """Give the row of a made-up id its `vmId`, which no other row has."""
    before, former.vm_id = former.vm_id, vm_id
    Machine.objects.filter(pk=former.pk).update(vm_id=vm_id)
    admissions.done(before)
    write([_identified(former, before, vm_id, now, set_id=former.availability_set_id)])


def end(former: Machine, *, now: datetime) -> None:
    """End the row of a made-up id, whose `vmId` has a row of its own: its key and its name are free."""
    Machine.objects.filter(pk=former.pk).update(revoked_at=now, credential_hash="")
    admissions.done(former.vm_id)
    transaction.on_commit(lambda: wake_up.forget_credentials([former.pk]))


def hand_over(former: Machine, machine: Machine, home: AvailabilitySet, *, now: datetime) -> None:
    """Give what is open of the ended row to `machine`, which is in the set `home`."""
    source = AvailabilitySet.objects.get(pk=former.availability_set_id)
    ordered = Q(approvals__orders__machine=former, approvals__orders__state__in=[one.value for one in OPEN_ORDERS])
    touched = ScheduledEvent.objects.filter(Q(sightings__machine=former) | ordered, status__in=OPEN)
    # In the order of their ids, as everybody locks events.
    pks = sorted(set(touched.values_list("pk", flat=True)))
    compute.lock(pks)
    written: list[Entry] = []
    alone = not source.machines.filter(revoked_at=None).exists()
    if source.pk != home.pk and source.kind == PROVISIONAL and alone:
        written.append(join(source, home, now=now, stated_by=machine.resource_name))
    else:
        written += bring_events(former, home, now=now)
    _give(Sighting.objects.filter(machine=former, event_id__in=pks), machine, listed_epoch=0, listed_seq=0)
    _give(Preparation.objects.filter(machine=former, event_id__in=pks), machine, epoch=0, seq=0)
    elsewhere = Sighting.objects.filter(machine=machine, event_id__in=pks).exclude(event__availability_set=home)
    elsewhere.update(foreign=True)
    welcome_sightings(home)
    written.append(_identified(machine, former.vm_id, machine.vm_id, now, set_id=home.pk))
    write(written)
    events = compute.lock(pks)
    compute.compute_state(events, now=now)
    advance.advance_events(events, now=now, via="report")
    transaction.on_commit(lambda: wake_up.hint_events(pks))


def _give(rows: Any, machine: Machine, **position: int) -> None:
    """Make these rows the machine's, where it has none of its own; whatever it reports next is newer."""
    own = rows.model.objects.filter(machine=machine, event_id__in=rows.values("event_id"))
    known = list(own.values_list("event_id", flat=True))
    rows.exclude(event_id__in=known).update(machine_id=machine.pk, **position)


def _identified(machine: Machine, former_id: str, vm_id: str, now: datetime, *, set_id: int) -> Entry:
    return entry(
        EntryKind.MACHINE_IDENTIFIED,
        DRYDOCK,
        at=now,
        machine_id=machine.pk,
        set_id=set_id,
        name=machine.resource_name,
        before={"vm_id": former_id},
        after={"vm_id": vm_id},
    )
