"""How a machine gets its credential."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils.crypto import constant_time_compare
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.machines.names import machine_name
from fleet.domain.reason import Reason, as_json
from fleet.domain.refusal import Refused
from fleet.domain.secrets import hash_of, new_secret
from fleet.domain.sets import OUTSIDE, SetKey, read_stated
from fleet.domain.timeline import EntryKind
from fleet.models import JoinToken, Machine
from fleet.operations import wake_up
from fleet.operations.machines import admission_rule, admissions, join_tokens, names
from fleet.operations.orders import sign
from fleet.operations.sets import placement
from fleet.operations.sets.join import bring_events
from fleet.operations.timeline.entries import entry, write

MAX_ID = 200
MOST_WARNINGS = 5


@transaction.atomic
def enrol(*, request: wire.EnrolRequest, now: datetime, address: str = "") -> wire.EnrolAnswer | wire.EnrolPending:
    """Give a machine its credential.

    A known machine gets a new one for its old one, which ends at once; without it, or revoked, it waits for a person to
    admit it, unless its set's rule does. Only one that nobody knows enrols with a join token alone. Raises Refused
    `join-token-refused`, also where another set is stated than the token's; `admissions-full` or `validation`.
    """
    vm_id = request.machine_id.strip().lower()
    if not vm_id or len(vm_id) > MAX_ID:
        raise Refused("validation", Reason("machine-id-unusable", most=MAX_ID))
    compute = request.instance or {}
    stated = request.availability_set.strip()
    read_stated(stated)
    # Locked: whoever revokes it comes before or after.
    rows = Machine.objects.select_for_update(of=("self",)).select_related("availability_set__merged_into")
    known = rows.filter(vm_id=vm_id).first()
    token = None if _holds_credential(known, request) else join_tokens.valid(request.join_token, now=now)
    if known is not None and token is not None:
        admitted = admissions.is_admitted(known, request, now=now, address=address)
        if not admitted and not admission_rule.admits(known, token, now=now, address=address):
            return admissions.wait(known, request, token, now=now, address=address)
        admissions.done(known)
    token_set = token.set_name if token is not None else known.token_set if known is not None else ""
    confined = _confinement(known, token, compute)
    configured = stated or (token_set if confined is None else "")
    name = machine_name((request.resource_name.strip() or str(compute.get("name") or "") or vm_id)[:MAX_ID])
    placed = _place(known, vm_id=vm_id, name=name, configured=configured, compute=compute, confined=confined, now=now)
    plain = new_secret("agent")
    called = names.claim(known, vm_id=vm_id, stated=name, set_id=placed.home.pk, now=now)
    values = placed.where | {
        **called,
        "stated_set": stated,
        "token_set": token_set,
        "confined_to": confined and asdict(confined),
        "set_source": placed.source,
        "set_warnings": placed.warnings,
        "compute": compute,
        "agent_version": request.agent_version[:100],
        "protocol": request.protocol,
        "enrolled_at": now,
        "revoked_at": None,
        "credential_hash": hash_of(plain),
        "join_token": token or (known.join_token if known is not None else None),
    }
    machine, is_new = _keep(vm_id, values, now)
    if token is not None:
        JoinToken.objects.filter(pk=token.pk).update(uses=F("uses") + 1)
    if not called["called"]:
        placed.link(machine.pk)
    kind = EntryKind.MACHINE_ENROLLED if is_new else EntryKind.MACHINE_ENROLLED_AGAIN
    enrolled = entry(kind, machine_actor(called["resource_name"]), at=now, machine_id=machine.pk, set_id=placed.home.pk)
    brought = bring_events(known, placed.home, now=now) if known is not None else []
    disputed = known.set_warnings if known is not None else []
    warned = placement.note_warnings(
        machine.pk, called["resource_name"], placed.home.pk, disputed, placed.warnings, now=now
    )
    named = names.taken(machine.pk, name, was=known.called if known is not None else "", now=now)
    write([*placed.written, *brought, enrolled, *warned, *named])
    return wire.EnrolAnswer(credential=plain, machine_id=vm_id, server_time=now, signing_keys=sign.public_keys(now=now))


def _keep(vm_id: str, values: dict[str, Any], now: datetime) -> tuple[Machine, bool]:
    """Write the row of a machine; whether it is new."""
    machine, is_new = Machine.objects.get_or_create(vm_id=vm_id, defaults=values)
    if not is_new:
        values["warnings"] = [*machine.warnings, as_json(Reason("enrolled-again", at=now))][-MOST_WARNINGS:]
        Machine.objects.filter(pk=machine.pk).update(**values)
        transaction.on_commit(lambda: wake_up.forget_credentials([machine.pk]))
    return machine, is_new


def _confinement(known: Machine | None, token: JoinToken | None, compute: dict[str, Any]) -> SetKey | None:
    """Where a machine may be: where it is confined already, else where its join token says."""
    if known is not None and known.confined_to is not None:
        return join_tokens.confined_where_it_is(known, compute)
    return join_tokens.confinement(token, compute) if token is not None else None


def _place(known: Machine | None, **said: Any) -> placement.Placed:
    """Where it belongs. Who states another set than its join token's is refused; who was confined before is warned."""
    placed = placement.place_machine(machine=known, **said)
    if known is None or known.confined_to is None:
        for warning in placed.warnings:
            if warning["code"] == OUTSIDE:
                raise Refused("join-token-refused", Reason("enrols-elsewhere", **warning["values"]))
    return placed


def _holds_credential(known: Machine | None, request: wire.EnrolRequest) -> bool:
    """Whether who asks proves to be this machine by the credential that it has."""
    if known is None or known.revoked_at is not None or not (known.credential_hash and request.credential):
        return False
    return constant_time_compare(known.credential_hash, hash_of(request.credential))
