"""Signing of orders, so that an attacker with control over Redis, the broker or a proxy cannot start an event.

An agent trusts the keys that it got when it enrolled, and keys whose announcement is signed by a trusted key. A
rotation creates a new key; both sign until the overlap ends.
"""

import base64
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.db import transaction
from django.db.models import Q
from drydock_agent import wire

from fleet.domain.actor import COMMAND_LINE, DRYDOCK, Actor
from fleet.domain.reasons import Reason, Refused
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import SigningKey
from fleet.models.cipher import Cipher
from fleet.operations.locks import Lock, take
from fleet.operations.timeline.entries import tell

CIPHER = Cipher("drydock signing keys")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key that signs orders, with the key's id."""

    key_id: str
    private: Ed25519PrivateKey

    def sign(self, text: bytes) -> str:
        return _to_text(self.private.sign(text))


def _to_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _unwrapped(row: SigningKey) -> Ed25519PrivateKey | None:
    plain = CIPHER.decrypt(row.private_key, of=row.key_id)
    return None if plain is None else Ed25519PrivateKey.from_private_bytes(plain)


def _active(now: datetime) -> list[SigningKey]:
    return list(SigningKey.objects.filter(Q(retires_at__isnull=True) | Q(retires_at__gt=now)).order_by("pk"))


def _signers(rows: Iterable[SigningKey]) -> list[Signer]:
    found = []
    for row in rows:
        private = _unwrapped(row)
        if private is None:
            log.error("signing.unreadable", key=row.key_id, advice="Add the old SECRET_KEY to SECRET_KEY_FALLBACKS.")
        else:
            found.append(Signer(row.key_id, private))
    return found


def unreadable(*, now: datetime) -> list[str]:
    """Return the ids of keys that should sign but cannot be decrypted, because SECRET_KEY was different."""
    return [row.key_id for row in _active(now) if _unwrapped(row) is None]


def signed(orders: Collection[wire.Order], *, now: datetime) -> list[wire.Order]:
    """Return these orders with the signatures of all current keys. Runs one query; none without orders."""
    if not orders:
        return []
    signers = _signers(_active(now))
    return [
        replace(
            order,
            signatures=[wire.Signature(key=s.key_id, value=s.sign(wire.order_text(order))) for s in signers],
        )
        for order in orders
    ]


def public_keys(*, now: datetime) -> list[wire.PublicKey]:
    """Return the public keys that sign now, for an enrolling machine. Creates the first key if there is none."""
    rows = _active(now) or [_first(now)]
    return [wire.PublicKey(id=row.key_id, public_key=row.public_key) for row in rows]


@transaction.atomic
def _first(now: datetime) -> SigningKey:
    take(Lock.SIGNING_KEYS)
    return next(iter(_active(now)), None) or _make(None, now=now, actor=DRYDOCK)


def _make(introducer: Signer | None, *, now: datetime, actor: Actor) -> SigningKey:
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    key_id = hashlib.sha256(public).hexdigest()[:16]
    row = SigningKey(
        key_id=key_id,
        public_key=_to_text(public),
        private_key=CIPHER.encrypt(private.private_bytes_raw(), of=key_id),
        made_at=now,
        introduced_by=introducer.key_id if introducer else "",
    )
    if introducer:
        row.introduction = introducer.sign(wire.key_text(_word(row, retired=False)))
    row.save()
    after = {"key": key_id}
    tell(EntryKind.SIGNING_KEY_MADE, actor, at=now, after=after, key=key_id, introduced_by=row.introduced_by)
    return row


@transaction.atomic
def rotate(*, overlap: timedelta, now: datetime, actor: Actor = COMMAND_LINE) -> SigningKey:
    """Create a signing key. Earlier keys sign until the overlap ends; agents that receive the notice then trust them no
    more.

    Raises Refused `validation` if the overlap is negative, or if no key can announce the new one.
    """
    if overlap < timedelta(0):
        raise Refused("validation", Reason("overlap-negative"))
    take(Lock.SIGNING_KEYS)
    old = _active(now)
    signers = _signers(old)
    if old and not signers:
        raise Refused("validation", Reason("signing-keys-unreadable"))
    fresh = _make(signers[-1] if signers else None, now=now, actor=actor.because(""))
    successor = _signers([fresh])[0]
    ending = now + overlap
    for row in old:
        if row.retires_at is not None:
            continue
        row.retires_at, row.retired_by = ending, successor.key_id
        row.retirement = successor.sign(wire.key_text(_word(row, retired=True)))
        row.save(update_fields=["retires_at", "retired_by", "retirement"])
        values = {"before": {"retires_at": None}, "after": {"retires_at": iso(ending)}}
        tell(EntryKind.SIGNING_KEY_RETIRED, actor, at=now, **values, key=row.key_id, retires_at=ending)
    return fresh


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A signing key with the notices that agents receive: announcement (`introduction`) and retirement."""

    introduction: wire.KeyNotice | None
    retirement: wire.KeyNotice | None
    key_id: str


def all_keys(*, now: datetime) -> list[KnownKey]:
    """Return all signing keys that ever existed, oldest first. Runs one query."""
    return [
        KnownKey(
            introduction=_word(row, retired=False) if row.introduced_by else None,
            retirement=_word(row, retired=True) if row.retires_at is not None and row.retires_at <= now else None,
            key_id=row.key_id,
        )
        for row in SigningKey.objects.order_by("pk")
    ]


def _word(row: SigningKey, *, retired: bool) -> wire.KeyNotice:
    by, signature = (row.retired_by, row.retirement) if retired else (row.introduced_by, row.introduction)
    return wire.KeyNotice(id=row.key_id, public_key=row.public_key, retired=retired, by=by, signature=signature)


def news_for(keys: Iterable[KnownKey], trusted: Collection[str]) -> list[wire.KeyNotice]:
    """Return the key notices for an agent that trusts the keys `trusted` (ids).

    First come the keys that are new to the agent, each after the key that announced it, then retired keys.
    """
    rows = list(keys)
    known = set(trusted)
    words = []
    for row in rows:
        if row.key_id not in known and row.introduction is not None and row.introduction.by in known:
            words.append(row.introduction)
            known.add(row.key_id)
    return words + [row.retirement for row in rows if row.retirement is not None and row.key_id in known]
