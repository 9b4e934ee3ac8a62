"""Enrolment policy, join tokens and attested documents."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog
from cryptography import x509
from django import forms
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from drydock_agent import wire
from rest_framework import serializers

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.machines import attestation
from fleet.domain.machines.attestation import Attested, trust_of, verify
from fleet.domain.machines.enrolment import CHOICES, EntrancePolicy
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.sets import PROVISIONAL, SetKey, read_stated
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Entrance, JoinToken, Nonce
from fleet.models.cipher import derived_keys
from fleet.models.driver import query
from fleet.models.facts.machines import entrance_facts
from fleet.operations import locks
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, delete_audited, save_audited
from fleet.operations.inputs import LifetimeField
from fleet.operations.rights import expiry_within_token, is_token_valid, require
from fleet.operations.sets import placement
from fleet.operations.timeline.entries import tell

SHIPPED_ROOTS, SHIPPED_INTERMEDIATES = (Path(attestation.__file__).parent / name for name in ("roots", "intermediates"))
PURPOSE = "drydock challenges"

log = structlog.get_logger(__name__)


def challenge(*, now: datetime) -> wire.Challenge:
    """Return a nonce for an attested document. Nothing is stored."""
    nonce = attestation.new_nonce(key=derived_keys(PURPOSE)[0], now=now)
    return wire.Challenge(nonce=nonce, expires_in=attestation.LASTS.total_seconds(), server_time=now)


def attested_by(document: wire.AttestedDocument, *, now: datetime) -> Attested:
    """Verify an attested document of any subscription, use up its nonce, and return its content.

    Raises Refused `attestation-refused`, `intermediate-wanted`.
    """

    def judge(nonce: str) -> Reason | None:
        wrong = attestation.wrong_with(nonce, keys=derived_keys(PURPOSE), now=now)
        return wrong or (None if spend(nonce, now=now) else Reason("attested-nonce-spent"))

    # The certificates to trust, with intermediates, and further intermediates.
    folders = (Path(settings.ATTESTED_ROOTS or SHIPPED_ROOTS), SHIPPED_INTERMEDIATES)
    return verify(
        document.signature,
        document.intermediates,
        trust=trust_of(*(_read(_files(folder)) for folder in folders)),
        now=now,
        judge_nonce=judge,
        subscriptions=None,
    )


@transaction.atomic
def spend(nonce: str, *, now: datetime) -> bool:
    """Record that a nonce, or the mark of a signed call, was used. Return False if it was used before, at any
    gateway.
    """
    Nonce.objects.filter(spent_at__lt=now - 2 * (attestation.LASTS + attestation.AHEAD)).delete()
    spent = "INSERT INTO fleet_nonce (nonce, spent_at) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING nonce"
    return bool(query(spent, nonce, now))


def _files(folder: Path) -> tuple[tuple[Path, int], ...]:
    """Return the files of a folder, each with the time of its last change, after which it is read again."""
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(folder.iterdir()) if path.is_file())


@lru_cache(maxsize=8)
def _read(files: tuple[tuple[Path, int], ...]) -> tuple[x509.Certificate, ...]:
    found: list[x509.Certificate] = []
    for path, _ in files:
        raw = path.read_bytes()
        try:
            pem = b"-----BEGIN" in raw
            found += x509.load_pem_x509_certificates(raw) if pem else [x509.load_der_x509_certificate(raw)]
        except ValueError as error:
            log.warning("attestation.unreadable_certificate", file=str(path), error=str(error))
    return tuple(found)


# How machines may enrol: chosen by an administrator, where no setting states it.

MOST_SUBSCRIPTIONS = 50
SUBSCRIPTION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@transaction.atomic
def choose(*, policy: str, subscriptions: Sequence[str], actor: Actor, now: datetime) -> None:
    """Set the enrolment policy, one of `CHOICES`, and subscriptions that may enrol in addition to those in the
    settings.

    Raises Refused `not-permitted`, `validation`.
    """
    require(actor, Right.ADMINISTER)
    # There may be no row yet.
    locks.take(locks.Lock.ENROLMENTS)
    before = entrance_facts()
    if before.stated:
        raise Refused("validation", Reason("entrance-stated", policy=before.policy.value))
    if policy not in CHOICES:
        raise Refused("validation", Reason("entrance-unknown"))
    named = sorted({one.strip().lower() for one in subscriptions if one.strip()})
    wrong = [one for one in named if not SUBSCRIPTION.fullmatch(one)]
    if wrong or len(named) > MOST_SUBSCRIPTIONS:
        raise Refused("validation", Reason("entrance-subscription", most=MOST_SUBSCRIPTIONS))
    needs_one = policy in (EntrancePolicy.AUTO, EntrancePolicy.ATTESTED)
    if needs_one and not named and not settings.ATTESTED_SUBSCRIPTIONS:
        raise Refused("validation", Reason("entrance-no-subscription"))
    row = Entrance.objects.order_by("pk").first() or Entrance(policy="")
    row.chosen, row.subscriptions = policy, named
    row.save()
    after = entrance_facts()
    if after != before:
        both = (before, after)
        was, became = ({"policy": one.policy.value, "subscriptions": sorted(one.subscriptions)} for one in both)
        tell(EntryKind.ENTRANCE_CHANGED, actor, at=now, before=was, after=became)


# Tokens with which new agents enrol.

MOST_USABLE = 10_000

# Lifetimes in seconds that pages offer; the first is the default.
LIFETIMES = (
    (86_400, "1 day"),
    (3600, "1 hour"),
    (14_400, "4 hours"),
    (43_200, "12 hours"),
    (259_200, "3 days"),
    (604_800, "1 week"),
)


class JoinTokenForm(AuditedForm):
    expires_in_seconds = forms.TypedChoiceField(label="Valid for", choices=LIFETIMES, coerce=int)
    set_id = forms.IntegerField(label="Existing set", required=False, min_value=1)

    class Meta(AuditedForm.Meta):
        model, fields = JoinToken, ("comment", "expires_in_seconds", "max_uses", "set_id", "set_name")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["comment"].required = True


class JoinTokenRequestSerializer(AuditedSerializer):
    expires_in_seconds = LifetimeField("JOIN_TOKEN_SECONDS")
    set = serializers.CharField(
        source="set_name",
        required=False,
        allow_blank=True,
        default="",
        max_length=300,
        help_text=JoinToken._meta.get_field("set_name").help_text,
    )
    set_id = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        help_text="The same by the id of a set that is here, where two have one name.",
    )

    class Meta:
        model, fields = JoinToken, ("comment", "expires_in_seconds", "set", "set_id", "max_uses")
        extra_kwargs = {"comment": {"required": True}}


JOIN_TOKENS = Audit(
    ("prefix", "set_name", "expires_at", "max_uses"),
    created=EntryKind.TOKEN_CREATED,
    deleted=EntryKind.JOIN_TOKEN_ENDED,
    data=lambda row: {"prefix": row.prefix},
    # A revoked API token revokes its join tokens, also for a user who is no administrator.
    right=None,
)


@transaction.atomic
def create_join_token(sent: Sent, *, now: datetime, actor: Actor = COMMAND_LINE) -> tuple[JoinToken, str]:
    """Create a join token. Return it with the plain text, which is not available later.

    If a set is given (`[kind:]name` or id), machines that enrol with the token are confined to it. Raises Refused
    `not-found`, and as `save_audited` does.
    """
    require(actor, Right.ADMINISTER)
    plain = new_secret("join")
    row = JoinToken(prefix=prefix_of(plain), secret_hash=hash_of(plain), created_by=actor.person, created_at=now)
    row.made_with = actor.token

    def complete(row: JoinToken) -> tuple[()]:
        confined = _confinement(row.set_name, row.set_id)
        row.set_name, row.confined_to = (confined.shown, asdict(confined)) if confined is not None else ("", None)
        row.expires_at = expiry_within_token(now + timedelta(seconds=row.expires_in_seconds), actor)
        return ()

    return save_audited(sent, actor, JOIN_TOKENS, row=row, now=now, check=complete), plain


def _confinement(set_name: str, set_id: int | None) -> SetKey | None:
    """Return the set of a new join token: an existing one, or a new one whose place the first machine determines."""
    rows = AvailabilitySet.objects.select_related("merged_into").exclude(kind=PROVISIONAL)
    if set_id is not None:
        if set_name:
            raise Refused("validation", Reason("join-token-two-sets"))
        found = require_found(rows.filter(pk=set_id).first(), "not-found", Reason("set-unknown"))
        return placement.whole(placement.final(found))
    named = read_stated(set_name)
    if named is None:
        return None
    kind, name = named
    known = {placement.whole(placement.final(row)) for row in rows.filter(kind=kind, name__iexact=name)}
    if len(known) > 1:
        places = sorted(key.resource_group or key.subscription for key in known)
        raise Refused("validation", Reason("join-token-which-set", name=name, places=places))
    return next(iter(known), SetKey(kind, name))


def valid(plain: str, *, now: datetime) -> JoinToken:
    """Return the valid join token with this plain text, and lock it until the end of the transaction to count its uses.

    Raises Refused `join-token-refused`.
    """
    # A guess with the public prefix finds and locks nothing, as one with an unknown prefix.
    rows = JoinToken.objects.select_for_update().filter(prefix=prefix_of(plain), secret_hash=hash_of(plain))
    token = rows.first()
    if token is None:
        raise Refused("join-token-refused", Reason("join-token-unknown"))
    over = token.made_with is not None and not is_token_valid(token.made_with, now=now)
    if token.revoked_at is not None or token.expires_at <= now or over:
        raise Refused("join-token-refused", Reason("join-token-over"))
    if token.max_uses is not None and token.uses >= token.max_uses:
        raise Refused("join-token-refused", Reason("join-token-used-up", count=token.max_uses))
    return token


def is_valid(plain: str, *, now: datetime) -> bool:
    """Return whether `valid` would accept this plain text now."""
    try:
        with transaction.atomic():
            return bool(plain) and valid(plain, now=now) is not None
    except Refused:
        return False


def usable_hashes(*, now: datetime) -> frozenset[str]:
    """Return the hashes of the join tokens that admit machines now, of the newest ones. One query."""
    usable = Q(max_uses=None) | Q(uses__lt=F("max_uses"))
    rows = JoinToken.objects.filter(usable, revoked_at=None, expires_at__gt=now).order_by("-pk")
    return frozenset(rows.values_list("secret_hash", flat=True)[:MOST_USABLE])


@transaction.atomic
def end_join_token(*, prefix: str, now: datetime, actor: Actor = COMMAND_LINE) -> JoinToken:
    """Revoke a join token (by prefix). Machines that enrolled with it remain enrolled.

    Raises Refused `not-permitted`, `not-found`.
    """
    require(actor, Right.ADMINISTER)
    found = JoinToken.objects.select_for_update().filter(prefix=prefix.strip()).first()
    token = require_found(found, "not-found", Reason("join-token-none"))
    if token.revoked_at is None:
        delete_audited(token, actor, JOIN_TOKENS, now=now, revoked_at=now)
    return token
