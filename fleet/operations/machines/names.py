"""Which machine of a set is called what: `Resources` names machines, so no two of a set have one name."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from fleet.domain.actor import DRYDOCK
from fleet.domain.machines.names import name_beside
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Machine
from fleet.operations import locks
from fleet.operations.timeline.entries import entry, write


def claim(machine: Machine | None, *, vm_id: str, stated: str, set_id: int, now: datetime) -> dict[str, Any]:
    """The columns of a machine's row that say how it is called, now that it calls itself `stated`; `machine` is its row
    as it was, if it has one. After they are written comes `taken`.

    A name that another machine of the set has, which is heard, is not taken over.
    """
    if machine is not None and machine.availability_set_id == set_id and _claimed(machine) == stated.lower():
        return {"resource_name": machine.resource_name, "called": machine.called, "named_at": machine.named_at}
    # Nobody may have it yet: two that enrol at once are judged one after the other.
    locks.take(locks.Lock.NAMES, f"{set_id} {stated.lower()}")
    others = _claimants(set_id, stated).exclude(vm_id=vm_id)
    if not others.filter(_heard(now)).exists():
        return {"resource_name": stated, "called": "", "named_at": now}
    stays = machine is not None and machine.availability_set_id == set_id
    own = machine.resource_name if machine is not None and stays else name_beside(stated, vm_id)
    return {"resource_name": own, "called": stated, "named_at": now}


def settle(set_id: int, name: str, *, now: datetime) -> list[Entry]:
    """Give a name to the first that has called itself so, among those that are heard; the entries to write.

    Nothing changes while none of them is heard. Whoever loses the name gets one beside it, and gets the name back by
    being heard again: silence may be an event's doing.
    """
    rows = _claimants(set_id, name).select_for_update(of=("self",)).order_by("pk")
    claimants = list(rows.annotate(is_heard=_heard(now)))
    heard = [machine for machine in claimants if machine.is_heard]
    if not heard:
        return []
    first = min(heard, key=lambda one: (one.named_at is not None, one.named_at or now, one.called != "", one.pk))
    written: list[Entry] = []
    for machine in claimants:
        if machine is not first and not machine.called:
            other = name_beside(machine.resource_name, machine.vm_id)
            Machine.objects.filter(pk=machine.pk).update(resource_name=other, called=machine.resource_name)
            written.append(_entry(EntryKind.NAME_HELD, machine, other, first, now, called=machine.resource_name))
    if first.called:
        Machine.objects.filter(pk=first.pk).update(resource_name=first.called, called="")
        written.append(_entry(EntryKind.NAME_GIVEN, first, first.resource_name, None, now, called=first.called))
    return written


def taken(machine_id: int, stated: str, *, was: str, now: datetime) -> list[Entry]:
    """What follows once the columns of `claim` are written; the entries to write. `was` is what it called itself beside
    its name before.
    """
    machine = Machine.objects.defer("compute").get(pk=machine_id)
    written = settle(machine.availability_set_id, stated, now=now)
    machine.refresh_from_db(fields=["called", "resource_name"])
    if machine.called and machine.called.lower() != was.lower():
        holder = _claimants(machine.availability_set_id, stated).filter(called="").first()
        written.append(_entry(EntryKind.NAME_HELD, machine, machine.resource_name, holder, now, called=stated))
    return written


@transaction.atomic
def settle_all(*, now: datetime) -> None:
    """Settle each name that more than one machine claims: whoever had it may have fallen silent, or be back."""
    claims = Machine.objects.exclude(called="").filter(_heard(now), revoked_at=None).order_by("pk")
    pairs = dict.fromkeys((row, name.lower()) for row, name in claims.values_list("availability_set_id", "called"))
    for set_id, name in pairs:
        write(settle(set_id, name, now=now))


def _claimed(machine: Machine) -> str:
    return (machine.called or machine.resource_name).lower()


def _claimants(set_id: int, name: str) -> QuerySet[Machine]:
    named = Q(resource_name__iexact=name, called="") | Q(called__iexact=name)
    return Machine.objects.filter(named, availability_set=set_id, revoked_at=None)


def _heard(now: datetime) -> Q:
    """Of those: heard not long ago, or enrolled so."""
    since = now - timedelta(seconds=settings.LATE_SECONDS)
    return Q(presence__last_heard_at__gt=since) | Q(presence__last_heard_at=None, enrolled_at__gt=since)


def _entry(
    kind: EntryKind, machine: Machine, name: str, holder: Machine | None, now: datetime, *, called: str
) -> Entry:
    return entry(
        kind,
        DRYDOCK,
        at=now,
        machine_id=machine.pk,
        set_id=machine.availability_set_id,
        name=name,
        called=called,
        holder=holder.vm_id if holder is not None else "",
    )
