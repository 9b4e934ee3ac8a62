"""Instance metadata of enrolled machines: changes of ids and names.

An agent that could not read its `vmId` enrolled with a generated id. The key or credential of the generated id proves
that both are one machine; a join token or an id proves nothing. The row gets the `vmId`. If the `vmId` has its own row,
that row gets the open work, and the other row ends.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK
from fleet.domain.actor import machine as machine_actor
from fleet.domain.machines.enrolment import Proof
from fleet.domain.machines.inventory import machine_name, merged, name_with_suffix
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import OPEN_EVENTS, OPEN_ORDERS
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Machine, Preparation, ScheduledEvent, Sighting
from fleet.operations import locks
from fleet.operations.events import compute
from fleet.operations.machines import admissions, keys
from fleet.operations.orders import advance
from fleet.operations.sets import placement
from fleet.operations.sets.join import bring_events, join, welcome_sightings
from fleet.operations.timeline.entries import gathered, tell_machine


def proved(request: wire.EnrolRequest, proof: Proof, *, vm_id: str, now: datetime) -> Machine | None:
    """Lock and return the machine with a generated id that the caller was before; None without proof.

    A machine whose instance metadata or attested document has stated the `vmId` had no generated id.
    """
    former_id = request.former_id.strip().lower()
    if not former_id or former_id == vm_id or request.machine_id_source != "imds":
        return None
    rows = Machine.objects.select_for_update(of=("self",)).select_related("availability_set__merged_into")
    row = rows.filter(vm_id=former_id).first()
    if row is None or row.attested_at is not None or str(row.compute.get("vmId") or "").lower() == former_id:
        return None
    owner = keys.owner(row, request, proof, now=now)
    # A machine that never had a key, for instance after a lost answer, cannot prove its identity.
    return row if owner is not None and owner.proved_by else None


def rename(former: Machine, vm_id: str, *, now: datetime) -> None:
    """Replace the generated id of a machine's row by its `vmId`, which no other row has."""
    before, former.vm_id = former.vm_id, vm_id
    Machine.objects.filter(pk=former.pk).update(vm_id=vm_id)
    admissions.done(before)
    _record_id(former, before, vm_id, now, set_id=former.availability_set_id)


def hand_over_open_events(former: Machine, machine: Machine, home: AvailabilitySet, *, now: datetime) -> None:
    """Move open events and orders from the ended row `former` to `machine`, which is in the set `home`."""
    source = AvailabilitySet.objects.get(pk=former.availability_set_id)
    ordered = Q(approvals__orders__machine=former, approvals__orders__state__in=OPEN_ORDERS)
    touched = ScheduledEvent.objects.filter(Q(sightings__machine=former) | ordered, status__in=OPEN_EVENTS)
    # In the order of their ids, as every caller locks events.
    pks = sorted(set(touched.values_list("pk", flat=True)))
    compute.lock(pks)
    alone = not source.machines.filter(revoked_at=None).exists()
    if source.pk != home.pk and source.kind == PROVISIONAL and alone:
        join(source, home, now=now, stated_by=machine.resource_name)
    else:
        bring_events(former, home, now=now)
    # Unless it has equivalent ones. Its next report counts as newer.
    for model, position in ((Sighting, {"listed_epoch": 0, "listed_seq": 0}), (Preparation, {"epoch": 0, "seq": 0})):
        rows = model._default_manager.filter(event_id__in=pks)
        known = list(rows.filter(machine=machine).values_list("event_id", flat=True))
        rows.filter(machine=former).exclude(event_id__in=known).update(machine_id=machine.pk, **position)
    elsewhere = Sighting.objects.filter(machine=machine, event_id__in=pks).exclude(event__availability_set=home)
    elsewhere.update(foreign=True)
    welcome_sightings(home)
    _record_id(machine, former.vm_id, machine.vm_id, now, set_id=home.pk)
    advance.recompute(pks, now=now, via="report")


def _record_id(machine: Machine, former_id: str, vm_id: str, now: datetime, *, set_id: int) -> None:
    before, after = {"vm_id": former_id}, {"vm_id": vm_id}
    tell_machine(EntryKind.MACHINE_IDENTIFIED, DRYDOCK, machine, now=now, set_id=set_id, before=before, after=after)


# Which machine of a set is called what: `Resources` names machines, so no two of a set have one name.


def name_columns(machine: Machine | None, *, vm_id: str, stated: str, set_id: int, now: datetime) -> dict[str, Any]:
    """Return the columns for the name of a machine that now states the name `stated`. Then call `settle_own_name`.

    `machine` is the machine's row before the change, if it exists. If another live or recently enrolled machine of the
    set has this name, the machine gets a derived one.
    """
    here = machine if machine is not None and machine.availability_set_id == set_id else None
    if here is not None and (here.called or here.resource_name).lower() == stated.lower():
        return {"resource_name": here.resource_name, "called": here.called, "named_at": here.named_at}
    # The name may be free: two machines that enrol at once are judged one after the other.
    locks.take(locks.Lock.NAMES, f"{set_id} {stated.lower()}")
    others = _claimants(set_id, stated).exclude(vm_id=vm_id)
    if not others.filter(_heard(now)).exists():
        return {"resource_name": stated, "called": "", "named_at": now}
    own = here.resource_name if here is not None else name_with_suffix(stated, vm_id)
    return {"resource_name": own, "called": stated, "named_at": now}


def settle_name(set_id: int, name: str, *, now: datetime) -> None:
    """Give a name in a set to the machine that stated it first, among the live ones.

    Nothing changes if none of them is live. A machine that loses the name gets a derived one, and gets the name back
    when it is live again, because an event may have caused its silence.
    """
    rows = _claimants(set_id, name).select_for_update(of=("self",)).order_by("pk")
    claimants = list(rows.annotate(is_heard=_heard(now)))
    heard = [machine for machine in claimants if machine.is_heard]
    if not heard:
        return
    first = min(heard, key=lambda one: (one.named_at is not None, one.named_at or now, one.called != "", one.pk))
    for machine in claimants:
        if machine is not first and not machine.called:
            other = name_with_suffix(machine.resource_name, machine.vm_id)
            Machine.objects.filter(pk=machine.pk).update(resource_name=other, called=machine.resource_name)
            _record_name(EntryKind.NAME_HELD, machine, other, first, now, called=machine.resource_name)
    if first.called:
        Machine.objects.filter(pk=first.pk).update(resource_name=first.called, called="")
        _record_name(EntryKind.NAME_GIVEN, first, first.resource_name, None, now, called=first.called)


def settle_own_name(machine_id: int, stated: str, *, was: str, now: datetime) -> None:
    """Decide which machine gets the name that this machine states. Call it after writing the result of `name_columns`.

    `was` is the name that it stated before while another machine had it.
    """
    machine = Machine.objects.defer("compute").get(pk=machine_id)
    settle_name(machine.availability_set_id, stated, now=now)
    machine.refresh_from_db(fields=["called", "resource_name"])
    if machine.called and machine.called.lower() != was.lower():
        holder = _claimants(machine.availability_set_id, stated).filter(called="").first()
        _record_name(EntryKind.NAME_HELD, machine, machine.resource_name, holder, now, called=stated)


@gathered()
def settle_all(*, now: datetime) -> None:
    """Decide again for each name that several machines state, because the holder may be silent, or live again."""
    claims = Machine.objects.exclude(called="").filter(_heard(now), revoked_at=None).order_by("pk")
    pairs = dict.fromkeys((row, name.lower()) for row, name in claims.values_list("availability_set_id", "called"))
    for set_id, name in pairs:
        settle_name(set_id, name, now=now)


def _claimants(set_id: int, name: str) -> QuerySet[Machine]:
    named = Q(resource_name__iexact=name, called="") | Q(called__iexact=name)
    return Machine.objects.filter(named, availability_set=set_id, revoked_at=None)


def _heard(now: datetime) -> Q:
    """Return a filter for machines that reported or enrolled recently."""
    since = now - timedelta(seconds=settings.MACHINE_LATE_SECONDS)
    return Q(presence__last_heard_at__gt=since) | Q(presence__last_heard_at=None, enrolled_at__gt=since)


def _record_name(
    kind: EntryKind, machine: Machine, name: str, holder: Machine | None, now: datetime, *, called: str
) -> None:
    vm_id = holder.vm_id if holder is not None else ""
    tell_machine(kind, DRYDOCK, machine, now=now, name=name, called=called, holder=vm_id)


# What machines say of themselves after they enrolled.


def claim_of(machine: Machine, data: wire.InstanceData) -> placement.Claim:
    """Return the facts that decide a machine's set, with new instance metadata. Values that it lacks remain as
    stored.
    """
    return placement.Claim(
        machine=machine,
        vm_id=machine.vm_id,
        name=machine_name(data.resource_name) or machine.called or machine.resource_name,
        stated=data.availability_set.strip(),
        compute=merged(machine.compute, data.compute, complete=data.complete),
    )


def take_instance(
    machine: Machine, claim: placement.Claim, *, node_name: str, now: datetime, agent_version: str
) -> None:
    """Update a machine's row from new instance metadata (`claim`) and the name of its Kubernetes node."""
    placed = placement.place(claim, now=now)
    called = name_columns(machine, vm_id=machine.vm_id, stated=claim.name, set_id=placed.home.pk, now=now)
    values = placed.where | {"resource_name": called["resource_name"]}
    changes = [field for field, value in values.items() if getattr(machine, field) != value]
    placement.settle(
        claim,
        placed,
        **called,
        stated_set=claim.stated,
        compute=claim.compute,
        node_name=node_name,
        agent_version=agent_version[:100] or machine.agent_version,
        confined_to=placed.confined and asdict(placed.confined),
        now=now,
    )
    if changes:
        moved = placed.home.pk != machine.availability_set_id
        tell_machine(
            EntryKind.MACHINE_MOVED if moved else EntryKind.MACHINE_CHANGED,
            machine_actor(machine.resource_name),
            machine,
            now=now,
            set_id=placed.home.pk,
            name=called["resource_name"],
            changes=changes,
        )
    settle_own_name(machine.pk, claim.name, was=machine.called, now=now)
