"""Machine keys and credentials: issuing, first use and revocation."""

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import lru_cache

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, ProtectedError, Q, QuerySet
from django.utils.crypto import constant_time_compare
from drydock_agent import wire

from fleet.domain.actor import Actor
from fleet.domain.machines.enrolment import Proof, key_name, machine_key, next_generation
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.secrets import hash_of
from fleet.domain.states import LIVE_APPROVALS, OPEN_ORDERS, EventStatus, Presence
from fleet.domain.timeline import EntryKind
from fleet.models import (
    Approval,
    AvailabilitySet,
    Cache,
    Coverage,
    Entry,
    JoinToken,
    Machine,
    ScheduledEvent,
    UnusedKey,
)
from fleet.models.cipher import derived_keys
from fleet.models.driver import query
from fleet.models.facts.events import machine_presence
from fleet.models.machines import UNSET
from fleet.operations import wake_up
from fleet.operations.events import scheduling
from fleet.operations.machines import admissions
from fleet.operations.machines.entrance import is_the_same
from fleet.operations.orders import advance
from fleet.operations.rights import acting
from fleet.operations.timeline.entries import tell_machine

PURPOSE = "drydock machine keys"
# At most this many events are computed at once for a machine that loses its vote; each takes milliseconds.
MOST_AT_ONCE = 500


def next_key(known: Machine | None, vm_id: str, *, now: datetime) -> tuple[str, int, str]:
    """Return the key of this machine's next generation in hex, the generation, and the name of the key."""
    generation = next_generation(known.key_generation if known is not None else 0, now)
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


# How a machine loses its credential. Only an admission brings it back.


@transaction.atomic
def revoke(*, machine_id: int, actor: Actor, now: datetime) -> None:
    """Revoke a machine (row id): the credential ends, and open events are computed without the machine's reports.

    All of this is one transaction, except that reconciliation computes the events beyond the first 500. Gateways learn
    of it by a wake-up, or without Redis within about a second; reports in between are not stored.

    Raises Refused `not-permitted`, `validation` or `unknown-machine`.
    """
    actor = acting(actor, Right.ADMINISTER)
    found = Machine.objects.defer("compute").filter(pk=machine_id).first()
    machine = require_found(found, "unknown-machine", Reason("machine-unknown"))
    if not Machine.objects.filter(pk=machine_id, revoked_at__isnull=True).update(revoked_at=now, credential_hash=""):
        return
    before, after = {"credential": "valid"}, {"credential": "revoked"}
    tell_machine(EntryKind.MACHINE_REVOKED, actor, machine, now=now, before=before, after=after)
    shut_out(machine, now=now)


def shut_out(machine: Machine, *, now: datetime) -> None:
    """Compute open events without the reports of a machine that was just revoked, and have gateways reject its key."""
    # A machine that was admitted under this identity has to request admission again.
    admissions.done(machine.vm_id)
    ordered = Q(approvals__orders__machine=machine.pk, approvals__orders__state__in=OPEN_ORDERS)
    said = ScheduledEvent.objects.filter(Q(sightings__machine=machine.pk) | ordered)
    _recompute(said, now=now)
    transaction.on_commit(lambda: wake_up.forget_credentials([machine.pk]))


@transaction.atomic
def discount(*, machine_id: int, actor: Actor, now: datetime) -> None:
    """Discount the reports of a silent or revoked machine (row id): open events are computed without them, until the
    machine reports again. Sets and caches that only this machine named are deleted if they are empty; the timeline
    keeps them.

    Raises Refused `not-permitted`, `validation`, `unknown-machine` or `machine-live`.
    """
    actor = acting(actor, Right.ADMINISTER)
    rows = Machine.objects.select_related("presence", "latest_document").defer("compute")
    machine = require_found(rows.filter(pk=machine_id).first(), "unknown-machine", Reason("machine-unknown"))
    if machine_presence(machine, now=now) in (Presence.LIVE, Presence.LATE):
        raise Refused("machine-live", Reason("machine-live"))
    Machine.objects.filter(pk=machine_id).update(discounted_at=now)
    events = _recompute(ScheduledEvent.objects.filter(sightings__machine=machine_id), now=now)
    deleted = delete_named_alone(machine_id)
    tell_machine(EntryKind.MACHINE_DISCOUNTED, actor, machine, now=now, events=events, **deleted)


def delete_named_alone(machine_id: int) -> dict[str, list[str]]:
    """Delete the empty sets and caches that only this machine (row id) named. Return their names."""
    named = Entry.objects.filter(machine=machine_id).values("availability_set").distinct()
    # Also of users: a set that a user named or changed belongs to more than this machine.
    others = Entry.objects.filter(availability_set=OuterRef("pk")).exclude(machine=machine_id)
    sets = AvailabilitySet.objects.filter(~Exists(others), pk__in=named, **UNSET)
    coverage = Coverage.objects.filter(machine=machine_id)
    shared = Coverage.objects.filter(cache=OuterRef("pk")).exclude(machine=machine_id)
    caches = Cache.objects.filter(~Exists(shared), pk__in=coverage.values("cache"))
    return {
        "sets": [row.name for row in sets if _delete_if_empty(row)],
        "caches": [row.host for row in caches if _delete_if_empty(row, coverage.filter(cache=row))],
    }


def _recompute(events: QuerySet[ScheduledEvent], *, now: datetime) -> int:
    """Compute the open ones of these events without a machine's reports, those with a decision first, and return their
    number. Reconciliation computes those that would make this transaction last for seconds.
    """
    decided = Exists(Approval.objects.filter(event=OuterRef("pk"), state__in=LIVE_APPROVALS))
    still_open = events.exclude(status=EventStatus.ENDED.value).annotate(decided=decided).distinct()
    pks = list(still_open.order_by("-decided", "pk").values_list("pk", flat=True))
    scheduling.make_due(Q(pk__any=pks[MOST_AT_ONCE:]))
    advance.recompute(pks[:MOST_AT_ONCE], now=now, via="report")
    return len(pks)


def _delete_if_empty(row: AvailabilitySet | Cache, *own: QuerySet[Coverage]) -> bool:
    """Delete a row that nothing refers to except `own`, and return whether this was so."""
    try:
        with transaction.atomic():
            for rows in own:
                rows.delete()
            row.delete()
    except ProtectedError:
        return False
    return True


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
    return row.join_token is None or is_the_same(row.join_token, request.join_token)


def note_issued(machine: Machine, found_by: str, owner: UnusedKey, *, now: datetime) -> None:
    """Record that this machine got the key or credential with the name `found_by` and has not used it yet."""
    owner.machine, owner.found_by, owner.given_at = machine, found_by, now
    owner.save()


def mark_used(names: Collection[str]) -> set[str]:
    """Mark these keys or credentials (names) as used. Return those that an enrolment is just replacing: they are
    invalid now.
    """
    return {name for (name,) in query(USE, list(names), list(names))}
