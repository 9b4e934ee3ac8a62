"""Machine keys and credentials: issuing, first use and revocation."""

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import lru_cache

from django.conf import settings
from django.utils.crypto import constant_time_compare
from drydock_agent import wire

from fleet.domain.machines.enrolment import Proof, key_name, machine_key
from fleet.domain.secrets import hash_of
from fleet.models import JoinToken, Machine, UnusedKey
from fleet.models.cipher import derived_keys
from fleet.models.driver import query

PURPOSE = "drydock machine keys"


def next_key(known: Machine | None, vm_id: str, *, now: datetime) -> tuple[str, int, str]:
    """Return the key of this machine's next generation in hex, the generation, and the name of the key.

    The generation is higher than any before it, and than any that a restored database has lost.
    """
    generation = max(known.key_generation + 1 if known is not None else 1, int(now.timestamp() * 1000))
    master = derived_keys(PURPOSE)[0]
    return machine_key(master, vm_id, generation).hex(), generation, key_name(master, vm_id, generation)


def possible_keys(vm_id: str, generation: int) -> tuple[tuple[bytes, str], ...]:
    """Return the possible keys of this generation, each with its name: by SECRET_KEY first, then by the
    fallback keys.
    """
    return _made(vm_id, generation, derived_keys(PURPOSE))


@lru_cache(maxsize=10_000)
def _made(vm_id: str, generation: int, masters: tuple[bytes, ...]) -> tuple[tuple[bytes, str], ...]:
    return tuple((machine_key(one, vm_id, generation), key_name(one, vm_id, generation)) for one in masters)


def are_bearer_credentials_accepted(now: datetime) -> bool:
    """Return whether calls with a credential instead of a key are still accepted."""
    return settings.LEGACY_CREDENTIALS_UNTIL is None or now < settings.LEGACY_CREDENTIALS_UNTIL


# Keys and credentials that were issued and not used yet: the answer that carried one may have been lost. Until the
# first call, the machine may be given another without an administrator; afterwards an administrator decides.


# An agent without an answer repeats its request within a minute, or after its restart.
LASTS = timedelta(days=1)
# Of the keys that prove it: what the machine had, and those that were given since in answers that may be lost.
MOST = 5
# A row that is being replaced right now does not block other callers.
USE = f"""
    WITH asked AS (SELECT machine_id, found_by FROM {UnusedKey._meta.db_table} WHERE found_by = ANY(%s)),
        free AS (SELECT machine_id FROM {UnusedKey._meta.db_table} WHERE found_by = ANY(%s) FOR UPDATE SKIP LOCKED),
        gone AS (DELETE FROM {UnusedKey._meta.db_table} AS row USING free WHERE row.machine_id = free.machine_id)
    SELECT found_by FROM asked WHERE machine_id NOT IN (SELECT machine_id FROM free)
"""


def new_owner(request: wire.EnrolRequest, proof: Proof, token: JoinToken | None) -> UnusedKey:
    """Return who gets a new key, for a machine that has not proved to be a known one. The row is not saved."""
    attested = proof.attested is not None
    ask_hash = hash_of(request.ask) if request.ask else ""
    return UnusedKey(ask_hash=ask_hash, attested=attested, join_token=None if attested else token)


def owner(known: Machine | None, request: wire.EnrolRequest, proof: Proof, *, now: datetime) -> UnusedKey | None:
    """Return who gets a new key if the caller proves to be this machine, whose row is locked; else None. The row is not
    saved.

    Proof is the machine's current key or credential, or the evidence for a key that was issued and not used.
    """
    if known is None or known.revoked_at is not None:
        return None
    shown = {proof.signed_by} if proof.signed_by else set()
    if request.credential and are_bearer_credentials_accepted(now):
        shown.add(hash_of(request.credential))
    if known.credential_hash and known.credential_hash in shown:
        return UnusedKey(proved_by=[known.credential_hash])
    rows = UnusedKey.objects.select_for_update(of=("self",)).select_related("join_token")
    row = rows.filter(machine=known, found_by=known.credential_hash, given_at__gt=now - LASTS).first()
    if row is None or not _was_given(row, shown, request, proof):
        return None
    if row.proved_by:
        # Answers may arrive in another order than they were given in.
        first, *others = row.proved_by
        row.proved_by = [first, *[*others, known.credential_hash][1 - MOST :]]
    return row


def _was_given(row: UnusedKey, shown: Collection[str], request: wire.EnrolRequest, proof: Proof) -> bool:
    if row.proved_by:
        return any(name in shown for name in row.proved_by)
    if not row.ask_hash or not constant_time_compare(row.ask_hash, hash_of(request.ask)):
        return False
    if row.attested:
        return proof.attested is not None
    token = row.join_token
    # Its uses may be exhausted.
    same = token is not None and constant_time_compare(token.secret_hash, hash_of(request.join_token))
    return token is None or (same and token.revoked_at is None)


def note_issued(machine: Machine, found_by: str, owner: UnusedKey, *, now: datetime) -> None:
    """Record that this machine got the key or credential with the name `found_by` and has not used it yet."""
    owner.machine, owner.found_by, owner.given_at = machine, found_by, now
    owner.save()


def mark_used(names: Collection[str]) -> set[str]:
    """Mark these keys or credentials (names) as used. Return those that an enrolment is just replacing: they are
    invalid now.
    """
    return {name for (name,) in query(USE, list(names), list(names))}
