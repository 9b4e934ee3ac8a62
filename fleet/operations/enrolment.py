"""How a machine gets its credential, and how it loses it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils.crypto import constant_time_compare
from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.domain.sets import read_stated
from fleet.models import JoinToken, Machine
from fleet.operations import bells, entries, sets, signing
from fleet.operations.entries import COMMAND_LINE, iso
from fleet.operations.errors import Refused
from fleet.operations.rights import require_administer
from fleet.operations.secrets import hash_of, new_secret, prefix_of


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """Who a credential belongs to."""

    machine_id: int
    vm_id: str


@transaction.atomic
def create_join_token(
    *,
    comment: str,
    expires_in: timedelta,
    now: datetime,
    by: User | None = None,
    via: str = "command",
    token_name: str = "",
    set_name: str = "",
) -> tuple[JoinToken, str]:
    """A token with which agents enrol until it expires. The plain text is returned this once.

    `set_name` is `[kind:]name` for machines that name no set themselves. Raises Refused `validation` or
    `not-permitted`; without `by` it is made on the command line.
    """
    if by is not None:
        require_administer(by)
    if expires_in <= timedelta(0) or expires_in > timedelta(days=366):
        raise Refused("validation", "A join token lives for more than no time and for at most 366 days.")
    try:
        read_stated(set_name)
    except ValueError as error:
        raise Refused("validation", str(error)) from error
    plain = new_secret("join")
    token = JoinToken.objects.create(
        prefix=prefix_of(plain),
        secret_hash=hash_of(plain),
        comment=comment,
        set_name=set_name.strip(),
        created_by=by,
        created_at=now,
        expires_at=now + expires_in,
    )
    actor = by.get_username() if by else COMMAND_LINE
    text = f"A join token was made by {actor}, valid until {token.expires_at:%Y-%m-%d %H:%M} UTC."
    entries.write(
        [
            entries.entry(
                EntryKind.TOKEN_CREATED,
                text,
                at=now,
                actor=actor,
                via=via,
                token_name=token_name,
                why=comment,
                before={"join_token": None},
                after={
                    "join_token": token.prefix,
                    "set": token.set_name,
                    "expires_at": iso(token.expires_at),
                },
            )
        ]
    )
    return token, plain


def _valid_token(plain: str, now: datetime) -> JoinToken:
    token = JoinToken.objects.filter(prefix=prefix_of(plain)).first()
    if token is None or not constant_time_compare(token.secret_hash, hash_of(plain)):
        raise Refused("join-token-refused", "This join token is not known here. Make one and configure it.")
    if token.revoked_at is not None or token.expires_at <= now:
        raise Refused("join-token-refused", "This join token has expired or was revoked. Make a new one.")
    return token


@transaction.atomic
def enrol(*, request: wire.EnrolRequest, now: datetime) -> wire.EnrolAnswer:
    """Give a machine its credential.

    A vmId that is known already gets a new credential; the old one ends at once and a warning stays, since two machines
    may be claiming one identity. Raises Refused `join-token-refused` or `validation`.
    """
    token = _valid_token(request.join_token, now)
    vm_id = request.machine_id.strip().lower()
    if not vm_id or len(vm_id) > 200:
        raise Refused("validation", "machine_id is empty or longer than 200 characters.")
    compute = request.instance or {}
    stated = request.availability_set.strip()
    try:
        read_stated(stated)
    except ValueError as error:
        raise Refused("validation", str(error)) from error
    known = Machine.objects.select_related("availability_set__merged_into").filter(vm_id=vm_id).first()
    name = (request.resource_name.strip() or str(compute.get("name") or "") or vm_id)[:200]
    placed = sets.place_machine(
        machine=known, vm_id=vm_id, name=name, configured=stated or token.set_name, compute=compute, now=now
    )
    place = placed.place
    plain = new_secret("agent")
    values = {
        "resource_name": name,
        "availability_set": placed.home,
        "stated_set": stated,
        "token_set": token.set_name,
        "set_source": placed.source,
        "set_warnings": placed.warnings,
        "fault_domain": place.fault_domain,
        "update_domain": place.update_domain,
        "zone": place.zone,
        "region": place.region,
        "size": place.size,
        "os_type": place.os_type,
        "compute": compute,
        "agent_version": request.agent_version[:100],
        "protocol": request.protocol,
        "enrolled_at": now,
        "revoked_at": None,
        "credential_hash": hash_of(plain),
    }
    machine, is_new = Machine.objects.get_or_create(vm_id=vm_id, defaults=values)
    kind, text = EntryKind.MACHINE_ENROLLED, f"{machine.resource_name} enrolled."
    if not is_new:
        warning = f"Enrolled again at {now:%Y-%m-%d %H:%M:%S} UTC: the credential before it was revoked."
        values["warnings"] = [*machine.warnings, warning][-5:]
        Machine.objects.filter(pk=machine.pk).update(**values)
        kind, text = (
            EntryKind.MACHINE_ENROLLED_AGAIN,
            f"{values['resource_name']} enrolled again; its old credential ended.",
        )
        transaction.on_commit(lambda: bells.ring_revoked([machine.pk]))
    JoinToken.objects.filter(pk=token.pk).update(uses=F("uses") + 1)
    placed.link(machine.pk)
    brought = sets.bring_events(known, placed.home, now=now) if known is not None else []
    disputed = known.set_warnings if known is not None else []
    entries.write(
        [
            *placed.written,
            *brought,
            entries.entry(
                kind,
                text,
                at=now,
                machine_id=machine.pk,
                set_id=placed.home.pk,
                actor=name,
                via="agent",
            ),
            *sets.note_warnings(machine.pk, name, placed.home.pk, disputed, placed.warnings, now=now),
        ]
    )
    return wire.EnrolAnswer(
        credential=plain, machine_id=vm_id, server_time=now, signing_keys=signing.public_keys(now=now)
    )


def authenticate(*, credential: str) -> MachineIdentity | None:
    """The machine whose credential this is; None when unknown or revoked. One indexed look by the hash."""
    row = (
        Machine.objects.filter(credential_hash=hash_of(credential), revoked_at__isnull=True)
        .values_list("pk", "vm_id")
        .first()
    )
    return MachineIdentity(machine_id=row[0], vm_id=row[1]) if row else None


@transaction.atomic
def revoke(*, machine_id: int, by: User, via: str, now: datetime, token_name: str = "") -> None:
    """End a machine's credential at once. Raises Refused `not-permitted` or `unknown-machine`."""
    require_administer(by)
    machine = Machine.objects.filter(pk=machine_id).first()
    if machine is None:
        raise Refused("unknown-machine", "There is no machine of this id.")
    if not Machine.objects.filter(pk=machine_id, revoked_at__isnull=True).update(revoked_at=now, credential_hash=""):
        return
    text = f"{by.get_username()} revoked the credential of {machine.resource_name}."
    entries.write(
        [
            entries.entry(
                EntryKind.MACHINE_REVOKED,
                text,
                at=now,
                machine_id=machine.pk,
                set_id=machine.availability_set_id,
                actor=by.get_username(),
                via=via,
                token_name=token_name,
                before={"credential": "valid"},
                after={"credential": "revoked"},
            )
        ]
    )
    transaction.on_commit(lambda: bells.ring_revoked([machine_id]))
