"""Enrolment of machines, and counts of refused enrolments."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.machines.attestation import Attested
from fleet.domain.machines.enrolment import EntrancePolicy, Proof, is_admitted_by_policy, matched_proof
from fleet.domain.reasons import Reason, Refused, as_json
from fleet.domain.secrets import hash_of, new_secret
from fleet.domain.sets import PROVISIONAL, read_stated
from fleet.domain.timeline import EntryKind
from fleet.models import JoinToken, Machine, RefusedEnrolment, UnusedKey
from fleet.models.facts.machines import EntranceFacts, entrance_facts
from fleet.operations import locks, wake_up
from fleet.operations.machines import admissions, entrance, instance, keys
from fleet.operations.orders import sign
from fleet.operations.sets import placement
from fleet.operations.timeline.entries import gathered, tell

LASTS = timedelta(days=7)
MOST = 200
# One caller leaves room for all others.
MOST_OF_AN_ADDRESS = 20
# In the order of their keys, so that processes never wait for each other in a circle.
KEEP = f"""
    INSERT INTO {RefusedEnrolment._meta.db_table} AS row
        (code, vm_id, name, address, reason, count, first_at, last_at)
    VALUES (%(code)s, %(vm_id)s, %(name)s, %(address)s, %(reason)s::jsonb, %(count)s, %(first_at)s, %(last_at)s)
    ON CONFLICT (code, vm_id) DO UPDATE SET
        count = row.count + EXCLUDED.count, last_at = GREATEST(row.last_at, EXCLUDED.last_at),
        name = EXCLUDED.name, address = EXCLUDED.address, reason = EXCLUDED.reason
"""


@dataclass(slots=True)
class RefusedCalls:
    """Refused enrolments of one machine for one reason that are not stored yet. Name and address are as stated by the
    caller.
    """

    name: str
    address: str
    # A `Reason` as JSON text.
    reason: str
    first_at: datetime
    last_at: datetime
    count: int = 0


@transaction.atomic
def keep(calls: Mapping[tuple[str, str], RefusedCalls], *, now: datetime) -> None:
    """Add these refused enrolments, by (reason code, vmId), to the stored counts.

    Beyond the limit of rows, one row for each code counts all others.
    """
    rows = RefusedEnrolment.objects
    rows.filter(last_at__lt=now - LASTS).delete()
    known = set(rows.values_list("code", "vm_id"))
    by_address = dict(rows.exclude(vm_id="").values_list("address").annotate(Count("pk")).order_by())
    values: list[dict[str, Any]] = []
    for (code, vm_id), call in calls.items():
        values.append({"code": code, "vm_id": vm_id} | asdict(call))
        full = len(known) >= MOST or by_address.get(call.address, 0) >= MOST_OF_AN_ADDRESS
        if (code, vm_id) in known or not full:
            known.add((code, vm_id))
            by_address[call.address] = by_address.get(call.address, 0) + 1
        else:
            values[-1] |= {"vm_id": "", "name": "", "address": ""}
    values.sort(key=itemgetter("code", "vm_id"))
    with connection.cursor() as cursor:
        cursor.executemany(KEEP, values)


# How a machine gets its credential.

MAX_ID = 200
MOST_WARNINGS = 5
Answer = wire.EnrolAnswer | wire.EnrolPending


def enrol(*, request: wire.EnrolRequest, now: datetime, address: str = "", signed_by: str = "") -> Answer:
    """Enrol a machine: return its key (or a credential if it does not support keys), or that it must wait for
    admission.

    A known machine must prove its identity with its old key (`signed_by` is the name of the key), which then ends.
    Otherwise, or if it is revoked, an administrator or the rule of its set must admit it. A new machine is admitted by
    the installation's policy. Raises Refused `join-token-refused` (also if the machine states another set than the
    token), `attestation-refused`, `intermediate-wanted`, `admissions-full` or `validation`.
    """
    vm_id = request.machine_id.strip().lower()
    if not vm_id or len(vm_id) > MAX_ID:
        raise Refused("validation", Reason("machine-id-unusable", most=MAX_ID))
    facts = entrance_facts()
    attested = _attested(request, facts.policy, now)
    proof = matched_proof(Proof(attested, signed_by), vm_id=vm_id, compute=request.instance or {})
    try:
        return _enrol(request, vm_id, facts, proof, now=now, address=address)
    except IntegrityError:
        # A process of an earlier release takes no lock and was first: the machine is known now.
        return _enrol(request, vm_id, facts, proof, now=now, address=address)


def _attested(request: wire.EnrolRequest, policy: EntrancePolicy, now: datetime) -> Attested | None:
    """Verify the attested document in the request, if the policy uses it. Runs in its own transaction.

    So the nonce is used up even if a later step refuses the machine.
    """
    if request.attested is None or policy is EntrancePolicy.TOKEN:
        return None
    try:
        return entrance.attested_by(request.attested, now=now)
    except Refused:
        if policy is not EntrancePolicy.JOIN or not entrance.is_valid(request.join_token, now=now):
            raise
        # The join token is enough: a document whose certificates cannot be followed from here keeps no machine out.
        return None


def would_enrol(*, request: wire.EnrolRequest, now: datetime, address: str, signed_by: str = "") -> Answer:
    """Return what `enrol` would return now, or raise its error. Nothing is stored, and no nonce is used up."""
    with transaction.atomic():
        answer = enrol(request=request, now=now, address=address, signed_by=signed_by)
        transaction.set_rollback(True)
    return answer


@gathered()
def _enrol(
    request: wire.EnrolRequest, vm_id: str, facts: EntranceFacts, proof: Proof, *, now: datetime, address: str
) -> Answer:
    read_stated(request.availability_set.strip())
    # No row can be locked while there is none: requests for one machine are decided one after the other.
    locks.take(locks.Lock.ENROLMENTS, vm_id)
    # Locked: a revocation comes either before or after.
    rows = Machine.every.select_for_update(of=("self",)).select_related("availability_set__merged_into")
    known = rows.filter(vm_id=vm_id).first()
    token = admitted_to = None
    by_policy = False
    former = instance.proved(request, proof, vm_id=vm_id, now=now)
    owner = keys.owner(known, request, proof, now=now)
    if known is None and former is not None and facts.policy is not EntrancePolicy.ATTESTED:
        # The same machine, by its key: it has already enrolled.
        owner = UnusedKey(proved_by=[former.credential_hash])
    proved = owner is not None
    if owner is None:
        token = _token(request, facts.policy, now)
        asker = admissions.Asker(vm_id, known, token, proof, request, address)
        allowed = proof.attested is not None and proof.attested.subscription in facts.subscriptions
        claims, holds = known is not None, token is not None
        by_policy = is_admitted_by_policy(facts.policy, proof, known=claims, allowed=allowed, token=holds)
        if not by_policy:
            admitted_to = admissions.admitted(asker, now=now) or admissions.admits(asker, now=now)
            if admitted_to is None:
                return admissions.wait(asker, now=now)
        admissions.done(vm_id)
        owner = keys.new_owner(request, proof, token)
    if former is not None and known is None:
        instance.rename(former, vm_id, now=now)
        admissions.done(vm_id)
        known, former = former, None
    elif former is not None:
        # The `vmId` has its own row: key and name of the other one become free.
        former_pk = former.pk
        Machine.objects.filter(pk=former_pk).update(revoked_at=now, credential_hash="")
        admissions.done(former.vm_id)
        transaction.on_commit(lambda: wake_up.forget_credentials([former_pk]))
    # Who proved to be the same machine is as sure as it was.
    attested_at = now if proof.attested else known.attested_at if known is not None and proved else None
    answer = _admit_machine(
        admissions.claim_of(request, vm_id, proof, known=known, token=token, admitted_to=admitted_to),
        request,
        owner=owner,
        confines=by_policy and facts.policy is EntrancePolicy.JOIN and proof.attested is None,
        attested_at=attested_at,
        now=now,
    )
    if former is not None:
        machine = Machine.objects.select_related("availability_set").get(vm_id=vm_id)
        instance.hand_over_open_events(former, machine, machine.availability_set, now=now)
    return answer


def _admit_machine(
    claim: placement.Claim,
    request: wire.EnrolRequest,
    *,
    owner: UnusedKey,
    confines: bool,
    attested_at: datetime | None,
    now: datetime,
) -> wire.EnrolAnswer:
    """Create or update the machine in its set with a new key, and record that. `confines`: confine it to the
    named set.
    """
    known, token = claim.machine, claim.token
    placed = placement.place(claim, now=now)
    confined = placed.confined
    if confines and confined is None and placed.home.kind != PROVISIONAL:
        confined = placement.whole(placed.home)
    plain, key, generation, found_by = _secret(known, claim.vm_id, request, now)
    called = instance.name_columns(known, vm_id=claim.vm_id, stated=claim.name, set_id=placed.home.pk, now=now)
    warnings = [*known.warnings, as_json(Reason("enrolled-again", at=now))] if known is not None else []
    RefusedEnrolment.objects.filter(vm_id=claim.vm_id).delete()
    machine = placement.settle(
        claim,
        placed,
        **called,
        stated_set=claim.stated,
        token_set=claim.token_set,
        confined_to=confined and asdict(confined),
        compute=claim.compute,
        agent_version=request.agent_version[:100],
        protocol=request.protocol,
        enrolled_at=now,
        revoked_at=None,
        decommissioned_at=None,
        unlisted_at=None,
        attested_at=attested_at,
        credential_hash=found_by,
        key_generation=generation,
        join_token=token or (known.join_token if known is not None else None),
        warnings=warnings[-MOST_WARNINGS:],
        now=now,
    )
    if known is not None:
        transaction.on_commit(lambda: wake_up.forget_credentials([machine.pk]))
    keys.note_issued(machine, found_by, owner, now=now)
    if token is not None:
        JoinToken.objects.filter(pk=token.pk).update(uses=F("uses") + 1)
    kind = EntryKind.MACHINE_ENROLLED if known is None else EntryKind.MACHINE_ENROLLED_AGAIN
    back = {"decommissioned_at": known.decommissioned_at} if known is not None and known.decommissioned_at else {}
    tell(kind, machine_actor(called["resource_name"]), at=now, machine_id=machine.pk, set_id=placed.home.pk, **back)
    instance.settle_own_name(machine.pk, claim.name, was=known.called if known is not None else "", now=now)
    return wire.EnrolAnswer(
        credential=plain,
        machine_id=claim.vm_id,
        server_time=now,
        signing_keys=sign.public_keys(now=now),
        key=key,
        generation=generation,
    )


def _secret(known: Machine | None, vm_id: str, request: wire.EnrolRequest, now: datetime) -> tuple[str, str, int, str]:
    """Return a new credential (or empty), a new key in hex (or empty), the key's generation, and the name of either."""
    if request.keyed:
        return ("", *keys.next_key(known, vm_id, now=now))
    if not keys.are_bearer_credentials_accepted(now):
        raise Refused("not-permitted", Reason("bearer-over"))
    plain = new_secret("agent")
    return plain, "", 0, hash_of(plain)


def _token(request: wire.EnrolRequest, policy: EntrancePolicy, now: datetime) -> JoinToken | None:
    """Return the join token in the request, if valid. If the policy does not need tokens, an invalid one is ignored."""
    if policy is EntrancePolicy.TOKEN:
        return entrance.valid(request.join_token, now=now)
    try:
        return entrance.valid(request.join_token, now=now) if request.join_token else None
    except Refused:
        return None
