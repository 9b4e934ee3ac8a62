"""Waiting for a person: who enrols as a known machine without its credential, or as a revoked one."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.machines.names import machine_name
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused
from fleet.domain.secrets import hash_of
from fleet.domain.texts import cleaned
from fleet.domain.timeline import EntryKind
from fleet.models import Admission, JoinToken, Machine
from fleet.operations.people.rights import require
from fleet.operations.timeline.entries import tell

# Who stops asking is forgotten; an agent asks twice a minute.
LASTS = timedelta(days=1)
MOST = 1000
MOST_OF_A_MACHINE = 5
RETRY_SECONDS = 30.0


def _hash(request: wire.EnrolRequest, address: str) -> str:
    # Of an agent of 0.1.0 nothing is known but its join token and where it asks from.
    return hash_of(request.ask or f"{address} {request.join_token}")


def is_admitted(machine: Machine, request: wire.EnrolRequest, *, now: datetime, address: str) -> bool:
    """Whether a person has admitted whoever asks here, within the last day."""
    asked = Admission.objects.filter(machine=machine, ask_hash=_hash(request, address))
    return asked.filter(admitted_at__gt=now - LASTS).exists()


def done(machine: Machine) -> None:
    """The admitted one has its credential, or nobody's admission counts any more: nobody waits for it."""
    Admission.objects.filter(machine=machine).delete()


def wait(
    machine: Machine, request: wire.EnrolRequest, token: JoinToken, *, now: datetime, address: str
) -> wire.EnrolPending:
    """Note that this machine, whose row is locked, is asked for. Raises Refused `admissions-full`."""
    Admission.objects.filter(last_asked_at__lt=now - LASTS).delete()
    said = {"last_asked_at": now, "address": address[:100], "agent_version": request.agent_version[:100]}
    if not Admission.objects.filter(machine=machine, ask_hash=_hash(request, address)).update(**said):
        of_machine = Admission.objects.filter(machine=machine).count()
        if of_machine >= MOST_OF_A_MACHINE or Admission.objects.count() >= MOST:
            raise Refused("admissions-full", Reason("admissions-full"))
        row = Admission.objects.create(
            machine=machine,
            ask_hash=_hash(request, address),
            bound=bool(request.ask),
            resource_name=machine_name(request.resource_name[:200]),
            join_token=token,
            revoked=machine.revoked_at is not None,
            first_asked_at=now,
            **said,
        )
        _tell(EntryKind.MACHINE_WAITS, row, DRYDOCK, now, revoked=row.revoked)
    return wire.EnrolPending(server_time=now, retry_after=RETRY_SECONDS)


@transaction.atomic
def admit(*, ids: Sequence[int], actor: Actor, now: datetime) -> int:
    """Each of these gets its machine's credential when it asks again; how many.

    Of several who ask for one machine the last admitted counts alone. Raises Refused `not-permitted`, `not-found`,
    `validation`.
    """
    rows, actor = _waiting(ids, actor)
    twice = [row.machine.resource_name for row, after in pairwise(rows) if row.machine_id == after.machine_id]
    if twice:
        raise Refused("validation", Reason("admission-twice", name=twice[0]))
    for row in rows:
        Admission.objects.filter(machine=row.machine_id).update(admitted_at=None, admitted_by="")
        Admission.objects.filter(pk=row.pk).update(admitted_at=now, admitted_by=actor.name)
        _decided(EntryKind.MACHINE_ADMITTED, row, actor, now, "admitted")
    return len(rows)


@transaction.atomic
def refuse(*, ids: Sequence[int], actor: Actor, now: datetime) -> int:
    """These wait no longer; how many. Raises Refused `not-permitted`, `not-found`, `validation`."""
    rows, actor = _waiting(ids, actor)
    for row in rows:
        _decided(EntryKind.ADMISSION_REFUSED, row, actor, now, "refused")
    Admission.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _waiting(ids: Sequence[int], actor: Actor) -> tuple[list[Admission], Actor]:
    require(actor, Right.ADMINISTER)
    actor = actor.because(cleaned(actor.why))
    rows = list(Admission.objects.select_for_update(of=("self",)).select_related("machine").filter(pk__in=ids))
    if len(rows) != len(set(ids)):
        raise Refused("not-found", Reason("admission-unknown"))
    return sorted(rows, key=lambda row: (row.machine_id, row.pk)), actor


def _decided(kind: EntryKind, row: Admission, actor: Actor, now: datetime, after: str) -> None:
    _tell(kind, row, actor, now, before={"admission": "waits"}, after={"admission": after})


def _tell(kind: EntryKind, row: Admission, actor: Actor, now: datetime, **data: Any) -> None:
    tell(
        kind,
        actor,
        at=now,
        machine_id=row.machine_id,
        set_id=row.machine.availability_set_id,
        name=row.machine.resource_name,
        address=row.address,
        **data,
    )
