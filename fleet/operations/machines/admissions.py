"""Admission of machines by an administrator, or by the rule of a set."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.machines.enrolment import Proof, claimed_of, enrolled_name
from fleet.domain.machines.inventory import merged
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, as_json, require_found
from fleet.domain.secrets import hash_of
from fleet.domain.sets import PROVISIONAL, SetKey, agree, read_stated
from fleet.domain.states import Presence
from fleet.domain.timeline import EntryKind
from fleet.models import Admission, AvailabilitySet, JoinToken, Machine
from fleet.models.facts.events import machine_presence
from fleet.models.facts.machines import presence_limits
from fleet.operations.rights import acting
from fleet.operations.sets import placement
from fleet.operations.timeline.entries import tell

# A request that is not repeated is deleted; an agent repeats it twice a minute.
LASTS = timedelta(days=1)
MOST = 1000
MOST_OF_A_MACHINE = 5
# Of those for whom nothing speaks: no machine that is known, no join token, no document of Azure's.
STRANGERS_LAST = timedelta(hours=1)
MOST_STRANGERS = 500
MOST_OF_AN_ADDRESS = 100
WAITS = {"admission": "waits"}


@dataclass(frozen=True, slots=True)
class Asker:
    """A machine that enrols without proving that it is an enrolled one.

    `known` is the enrolled machine that it claims to be, with the row locked; None for a new machine.
    """

    vm_id: str
    known: Machine | None
    token: JoinToken | None
    proof: Proof
    request: wire.EnrolRequest
    address: str

    @property
    def secret_hash(self) -> str:
        # Of an agent of 0.1.0 only its join token and its address are known.
        return hash_of(self.request.ask or f"{self.address} {self.request.join_token}")

    @property
    def claimed(self) -> dict[str, Any]:
        """The instance metadata in the request, with the attested subscription if there is one."""
        return (self.request.instance or {}) | ({"subscriptionId": self.attested} if self.attested else {})

    @property
    def attested(self) -> str:
        """The subscription in Azure's attested document, or empty."""
        return self.proof.attested.subscription if self.proof.attested is not None else ""

    @property
    def alone(self) -> bool:
        """Whether the machine brings no evidence: it is not known, and has neither a join token nor an attested
        document.
        """
        return self.known is None and self.token is None and self.proof.attested is None


def admission_request(asker: Asker) -> tuple[Admission, SetKey]:
    """Return the request for admission from this call, not written yet, and the set that the machine would join.

    An admission is valid only for exactly these facts, which `ask_hash` identifies: any different fact is a new
    request.
    """
    claim = claim_of(asker.request, asker.vm_id, asker.proof, known=asker.known, token=asker.token)
    home = placement.expected_set(claim)
    # A provisional set is named by the machine's id: no person has named it.
    set_name = home.shown if home.kind != PROVISIONAL else ""
    claimed = asdict(claimed_of(claim.name, asker.claimed, set_name))
    stated = as_json(claimed | {"set": asker.request.availability_set[:300]})
    token = asker.token.pk if asker.token is not None else 0
    fixed = [stated, asdict(home), asker.address, token, asker.attested]
    row = Admission(
        vm_id=asker.vm_id,
        machine=asker.known,
        said=stated,
        attested=asker.attested,
        ask_hash=f"{asker.secret_hash}.{hash_of(json.dumps(fixed, sort_keys=True))}",
        bound=bool(asker.request.ask),
        resource_name=claim.name,
        address=asker.address[:100],
        agent_version=asker.request.agent_version[:100],
        join_token=asker.token,
        revoked=asker.known is not None and asker.known.revoked_at is not None,
    )
    return row, home


def claim_of(
    request: wire.EnrolRequest,
    vm_id: str,
    proof: Proof,
    *,
    known: Machine | None,
    token: JoinToken | None,
    admitted_to: SetKey | None = None,
) -> placement.Claim:
    """Return the facts that decide the set of an enrolling machine (see `placement.Claim`).

    Instance metadata: as stated, completed by stored facts, with the attested subscription. Name: as stated, else the
    former name, else the id.
    """
    compute = merged(known.compute if known is not None else {}, request.instance or {}, complete=request.complete)
    if proof.attested is not None:
        compute["subscriptionId"] = proof.attested.subscription
    former_name = known.called or known.resource_name if known is not None else ""
    return placement.Claim(
        machine=known,
        vm_id=vm_id,
        name=enrolled_name(request.resource_name, compute, former_name or vm_id),
        stated=request.availability_set.strip(),
        compute=compute,
        token=token,
        admitted_to=admitted_to,
    )


def admitted(asker: Asker, *, now: datetime) -> SetKey | None:
    """Return the set for which an administrator has admitted exactly this request within the last day; else None."""
    request, home = admission_request(asker)
    rows = Admission.objects.select_for_update().filter(vm_id=asker.vm_id, ask_hash=request.ask_hash)
    return home if rows.filter(admitted_at__gt=now - LASTS).first() is not None else None


def done(vm_id: str) -> None:
    """Delete the requests for admission of a machine (vmId) that got its credential, or whose admission is no longer
    valid.
    """
    Admission.objects.filter(vm_id=vm_id).delete()


def wait(asker: Asker, *, now: datetime) -> wire.EnrolPending:
    """Store the machine's request for admission. Raises Refused `admissions-full`, `join-token-refused`."""
    has_secret = bool(asker.request.ask)
    if asker.token is None and not has_secret:
        # Any caller at its address would be mistaken for it.
        raise Refused("join-token-refused", Reason("join-token-unknown"))
    Admission.objects.filter(last_requested_at__lt=now - LASTS).delete()
    strangers = Admission.objects.filter(machine=None, join_token=None, attested="")
    strangers.filter(admitted_at=None, last_requested_at__lt=now - STRANGERS_LAST).delete()
    row, _ = admission_request(asker)
    own = Admission.objects.filter(vm_id=asker.vm_id, ask_hash__startswith=asker.secret_hash)
    if not own.filter(ask_hash=row.ask_hash).update(last_requested_at=now, agent_version=row.agent_version):
        # A new request replaces the machine's earlier ones that no administrator has admitted.
        replaced = own.filter(admitted_at=None).delete()[0] if has_secret else 0
        of_machine = Admission.objects.filter(vm_id=asker.vm_id).count()
        full = of_machine >= MOST_OF_A_MACHINE or Admission.objects.count() >= MOST
        if asker.alone:
            # Any caller that reaches this endpoint may ask: strangers must not keep out machines with evidence.
            full = full or strangers.count() >= MOST_STRANGERS
            full = full or strangers.filter(address=row.address).count() >= MOST_OF_AN_ADDRESS
        if full:
            raise Refused("admissions-full", Reason("admissions-full"))
        row.first_requested_at = row.last_requested_at = now
        row.save()
        if not asker.alone and not replaced:
            _tell(EntryKind.MACHINE_WAITS, row, DRYDOCK, now, revoked=row.revoked)
    return wire.EnrolPending(server_time=now, retry_after=30.0)


@transaction.atomic
def admit(*, ids: Sequence[int], actor: Actor, now: datetime) -> int:
    """Admit these requests (row ids) and return how many. A machine gets its credential when it repeats the same
    request.

    Of several requests for one machine, only the last admitted one is valid. Raises Refused `not-permitted`,
    `not-found`, `validation`.
    """
    rows, actor = _waiting(ids, actor)
    twice = [_name(row) for row, after in pairwise(rows) if row.vm_id == after.vm_id]
    if twice:
        raise Refused("validation", Reason("admission-twice", name=twice[0]))
    for row in rows:
        Admission.objects.filter(vm_id=row.vm_id).update(admitted_at=None, admitted_by="")
        Admission.objects.filter(pk=row.pk).update(admitted_at=now, admitted_by=actor.name)
        _tell(EntryKind.MACHINE_ADMITTED, row, actor, now, before=WAITS, after={"admission": "admitted"})
    return len(rows)


@transaction.atomic
def refuse(*, ids: Sequence[int], actor: Actor, now: datetime) -> int:
    """Delete these requests (row ids) and return how many. Raises Refused `not-permitted`, `not-found`,
    `validation`.
    """
    rows, actor = _waiting(ids, actor)
    for row in rows:
        _tell(EntryKind.ADMISSION_REFUSED, row, actor, now, before=WAITS, after={"admission": "refused"})
    Admission.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _waiting(ids: Sequence[int], actor: Actor) -> tuple[list[Admission], Actor]:
    actor = acting(actor, Right.ADMINISTER)
    rows = list(Admission.objects.select_for_update(of=("self",)).select_related("machine").filter(pk__in=ids))
    if len(rows) != len(set(ids)):
        raise Refused("not-found", Reason("admission-unknown"))
    return sorted(rows, key=lambda row: (row.vm_id, row.pk)), actor


def _name(row: Admission) -> str:
    return row.machine.resource_name if row.machine is not None else row.resource_name or row.vm_id


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


# A standing rule for one set: its machines that return without their credential are admitted automatically.

LONGEST = timedelta(days=7)


@transaction.atomic
def set_rule(*, set_id: int, until: datetime | None, actor: Actor, now: datetime) -> None:
    """Admit returning machines of this set automatically until a time; None ends that now.

    Raises Refused `not-permitted`, `validation`, `not-found`.
    """
    actor = acting(actor, Right.ADMINISTER)
    rows = AvailabilitySet.objects.select_for_update().filter(pk=set_id, merged_into=None)
    home = require_found(rows.first(), "not-found", Reason("set-unknown"))
    if until is not None and home.kind == PROVISIONAL:
        raise Refused("validation", Reason("admission-rule-unnamed"))
    if until is not None and not now < until <= now + LONGEST:
        raise Refused("validation", Reason("admission-rule-time", days=LONGEST.days))
    before = home.admits_until if home.admits_until is not None and home.admits_until > now else None
    if before == until:
        return
    AvailabilitySet.objects.filter(pk=set_id).update(admits_until=until)
    was, became = {"admits_until": before}, {"admits_until": until}
    tell(EntryKind.SET_CHANGED, actor, at=now, set_id=set_id, before=was, after=became, name=home.name)


def admits(asker: Asker, *, now: datetime) -> SetKey | None:
    """Return the set whose rule admits this machine, and record the admission; None if no rule does.

    The rule requires a join token that is confined to this set, or an attested document of the set's subscription. It
    does not admit a machine that is live or has just got a key. A revoked machine needs an administrator.
    """
    machine = asker.known
    home = placement.final(machine.availability_set) if machine is not None else _named(asker)
    if home is None or home.admits_until is None or home.admits_until <= now or not _speaks_for(asker, home):
        return None
    if machine is not None:
        row = Machine.objects.select_related("presence", "latest_document").defer("compute").get(pk=machine.pk)
        # Of several that ask at once the first has its key already, and no other replaces it.
        enrolled_now = now - machine.enrolled_at < timedelta(seconds=presence_limits().live)
        live = enrolled_now or machine_presence(row, now=now) is Presence.LIVE
        if live or machine.revoked_at is not None:
            return None
    name = machine.resource_name if machine is not None else asker.request.resource_name[:200] or asker.vm_id
    about = {"machine_id": machine.pk if machine is not None else None, "set_id": home.pk, "name": name}
    said = {"before": WAITS, "after": {"admission": "admitted"}, "address": asker.address[:100]}
    tell(EntryKind.MACHINE_ADMITTED, DRYDOCK, at=now, **about, **said, until=home.admits_until)
    return placement.whole(home)


def _speaks_for(asker: Asker, home: AvailabilitySet) -> bool:
    """Return whether a join token or attested document shows that the machine belongs to this set."""
    confined = placement.confinement_of(asker.token) if asker.token is not None else None
    if confined is not None and confined.placed and agree(confined, placement.key_of(home)):
        return True
    return bool(asker.attested) and asker.attested == home.subscription.lower()


def _named(asker: Asker) -> AvailabilitySet | None:
    """Return the existing set that a new machine states, if the rule of that set admits machines; else None."""
    if (named := read_stated(asker.request.availability_set.strip())) is None:
        return None
    rows = AvailabilitySet.objects.filter(merged_into=None, admits_until__isnull=False, kind=named[0])
    return rows.filter(name__iexact=named[1], subscription__iexact=asker.attested).order_by("pk").first()
