"""Waiting for a person: who enrols as a known machine without its credential, as a revoked one, or as a stranger."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.machines.entrance import Proof, claimed_of
from fleet.domain.machines.names import machine_name
from fleet.domain.people import Right
from fleet.domain.reason import Reason, as_json
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
# Of those for whom nothing speaks: no machine that is known, no join token, no document of Azure's.
STRANGERS_LAST = timedelta(hours=1)
MOST_STRANGERS = 500
MOST_OF_AN_ADDRESS = 100
RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Asker:
    """Who enrols without proof that it is a known machine. `known` is that one, its row locked; None of a stranger."""

    vm_id: str
    known: Machine | None
    token: JoinToken | None
    proof: Proof
    request: wire.EnrolRequest
    address: str

    @property
    def ask_hash(self) -> str:
        # Of an agent of 0.1.0 nothing is known but its join token and where it asks from.
        return hash_of(self.request.ask or f"{self.address} {self.request.join_token}")

    @property
    def attested(self) -> str:
        """The subscription that Azure has signed, or empty."""
        return self.proof.attested.subscription if self.proof.attested is not None else ""

    @property
    def alone(self) -> bool:
        """Whether nothing speaks for it: no machine that is known here, no token, no document of Azure's."""
        return self.known is None and self.token is None and self.proof.attested is None


def is_admitted(asker: Asker, *, now: datetime) -> bool:
    """Whether a person has admitted whoever asks here, within the last day."""
    asked = Admission.objects.filter(vm_id=asker.vm_id, ask_hash=asker.ask_hash)
    return asked.filter(admitted_at__gt=now - LASTS).exists()


def done(vm_id: str) -> None:
    """The admitted one has its credential, or nobody's admission counts any more: nobody waits for it."""
    Admission.objects.filter(vm_id=vm_id).delete()


def wait(asker: Asker, *, now: datetime) -> wire.EnrolPending:
    """Note that this machine is asked for. Raises Refused `admissions-full`, `join-token-refused`."""
    request = asker.request
    if asker.token is None and not request.ask:
        # Anybody at its address would be taken for it.
        raise Refused("join-token-refused", Reason("join-token-unknown"))
    Admission.objects.filter(last_asked_at__lt=now - LASTS).delete()
    strangers = Admission.objects.filter(machine=None, join_token=None, attested="")
    strangers.filter(admitted_at=None, last_asked_at__lt=now - STRANGERS_LAST).delete()
    said = {
        "last_asked_at": now,
        "address": asker.address[:100],
        "agent_version": request.agent_version[:100],
        "attested": asker.attested,
    }
    if not Admission.objects.filter(vm_id=asker.vm_id, ask_hash=asker.ask_hash).update(**said):
        of_machine = Admission.objects.filter(vm_id=asker.vm_id).count()
        full = of_machine >= MOST_OF_A_MACHINE or Admission.objects.count() >= MOST
        if asker.alone:
            # Whoever can reach this may ask: that must not keep out those for whom something speaks.
            full = full or strangers.count() >= MOST_STRANGERS
            full = full or strangers.filter(address=said["address"]).count() >= MOST_OF_AN_ADDRESS
        if full:
            raise Refused("admissions-full", Reason("admissions-full"))
        name = machine_name(request.resource_name[:200])
        claimed = asdict(claimed_of(name, request.instance or {}))
        row = Admission.objects.create(
            vm_id=asker.vm_id,
            machine=asker.known,
            said=as_json(claimed | {"set": request.availability_set[:300]}),
            ask_hash=asker.ask_hash,
            bound=bool(request.ask),
            resource_name=name,
            join_token=asker.token,
            revoked=asker.known is not None and asker.known.revoked_at is not None,
            first_asked_at=now,
            **said,
        )
        if not asker.alone:
            _tell(EntryKind.MACHINE_WAITS, row, DRYDOCK, now, revoked=row.revoked)
    return wire.EnrolPending(server_time=now, retry_after=RETRY_SECONDS)


@transaction.atomic
def admit(*, ids: Sequence[int], actor: Actor, now: datetime) -> int:
    """Each of these gets its machine's credential when it asks again; how many.

    Of several who ask for one machine the last admitted counts alone. Raises Refused `not-permitted`, `not-found`,
    `validation`.
    """
    rows, actor = _waiting(ids, actor)
    twice = [_name(row) for row, after in pairwise(rows) if row.vm_id == after.vm_id]
    if twice:
        raise Refused("validation", Reason("admission-twice", name=twice[0]))
    for row in rows:
        Admission.objects.filter(vm_id=row.vm_id).update(admitted_at=None, admitted_by="")
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
    return sorted(rows, key=lambda row: (row.vm_id, row.pk)), actor


def _name(row: Admission) -> str:
    return row.machine.resource_name if row.machine is not None else row.resource_name or row.vm_id


def _decided(kind: EntryKind, row: Admission, actor: Actor, now: datetime, after: str) -> None:
    _tell(kind, row, actor, now, before={"admission": "waits"}, after={"admission": after})


def _tell(kind: EntryKind, row: Admission, actor: Actor, now: datetime, **data: Any) -> None:
    tell(
        kind,
        actor,
        at=now,
        machine_id=row.machine_id,
        set_id=row.machine.availability_set_id if row.machine is not None else None,
        name=_name(row),
        address=row.address,
        **data,
    )
