"""Keys and credentials that were given and with which no call was made yet: the answer that brought one may have been
lost. Whoever was given it may then be given another, without a person; after the first call a person decides.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.utils.crypto import constant_time_compare
from drydock_agent import wire

from fleet.domain.machines.entrance import Proof
from fleet.domain.secrets import hash_of
from fleet.models import JoinToken, Machine, UnusedKey
from fleet.operations.machines.join_tokens import is_the_same
from fleet.operations.machines.keys import bearers_count

# An agent that got no answer asks again within a minute, and one that was off then when it is back.
LASTS = timedelta(days=1)
# Of the keys that prove it: what the machine had, and those that were given since in answers that may be lost.
MOST = 5
# One row that is being replaced right now keeps nobody else waiting.
USE = f"""
    WITH asked AS (SELECT machine_id, found_by FROM {UnusedKey._meta.db_table} WHERE found_by = ANY(%s)),
        free AS (SELECT machine_id FROM {UnusedKey._meta.db_table} WHERE found_by = ANY(%s) FOR UPDATE SKIP LOCKED),
        gone AS (DELETE FROM {UnusedKey._meta.db_table} AS row USING free WHERE row.machine_id = free.machine_id)
    SELECT found_by FROM asked WHERE machine_id NOT IN (SELECT machine_id FROM free)
"""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who is given a key, as it proves it when it has to ask again: by one of these keys, or else by its secret and by
    what spoke for it.
    """

    proved_by: tuple[str, ...] = ()
    ask_hash: str = ""
    attested: bool = False
    join_token: JoinToken | None = None


def newcomer(request: wire.EnrolRequest, proof: Proof, token: JoinToken | None) -> Owner:
    """Who comes in without having proved to be a known machine."""
    attested = proof.attested is not None
    ask_hash = hash_of(request.ask) if request.ask else ""
    return Owner(ask_hash=ask_hash, attested=attested, join_token=None if attested else token)


def owner(known: Machine | None, request: wire.EnrolRequest, proof: Proof, *, now: datetime) -> Owner | None:
    """As whom somebody proves to be this machine, its row locked: by what it has, or as who was given that and never
    got it; None where nothing is proved.
    """
    if known is None or known.revoked_at is not None:
        return None
    shown = {proof.signed_by} if proof.signed_by else set()
    if request.credential and bearers_count(now):
        shown.add(hash_of(request.credential))
    if known.credential_hash and known.credential_hash in shown:
        return Owner(proved_by=(known.credential_hash,))
    rows = UnusedKey.objects.select_for_update(of=("self",)).select_related("join_token")
    row = rows.filter(machine=known, found_by=known.credential_hash, given_at__gt=now - LASTS).first()
    if row is None or not _was_given(row, shown, request, proof):
        return None
    if not row.proved_by:
        return Owner(ask_hash=row.ask_hash, attested=row.attested, join_token=row.join_token)
    # Answers may arrive in another order than they were given in.
    first, *others = row.proved_by
    return Owner(proved_by=(first, *[*others, known.credential_hash][1 - MOST :]))


def _was_given(row: UnusedKey, shown: Collection[str], request: wire.EnrolRequest, proof: Proof) -> bool:
    if row.proved_by:
        return any(name in shown for name in row.proved_by)
    if not row.ask_hash or not constant_time_compare(row.ask_hash, hash_of(request.ask)):
        return False
    if row.attested:
        return proof.attested is not None
    return row.join_token is None or is_the_same(row.join_token, request.join_token)


def note_given(machine_id: int, found_by: str, owner: Owner, *, now: datetime) -> None:
    """This machine (row id) was given the key or credential that is found by this, and has not used it yet."""
    given = {
        "found_by": found_by,
        "proved_by": list(owner.proved_by),
        "ask_hash": owner.ask_hash,
        "attested": owner.attested,
        "join_token": owner.join_token,
        "given_at": now,
    }
    UnusedKey.objects.update_or_create(machine_id=machine_id, defaults=given)


def use(names: Collection[str]) -> set[str]:
    """Calls are made with these keys or credentials: they are unused no more. Returns those that an enrolment is
    replacing right now, which count for nothing from now on.
    """
    with connection.cursor() as cursor:
        cursor.execute(USE, [list(names), list(names)])
        return {name for (name,) in cursor.fetchall()}
