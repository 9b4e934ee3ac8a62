"""Sessions of people in browsers: what is known of each, beside Django's own row, which alone lets anybody in."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import models
from django.db.models import Exists, F, Func, OuterRef, Q, QuerySet
from django.db.models.functions import MD5

from fleet.domain.people import GROUPS
from fleet.domain.sign_on import Grant
from fleet.models.cipher import Cipher


class KeyHash(Func):
    """The SHA-256 of a session's key, as `fleet.domain.secrets.hash_of` makes it."""

    template = "encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex')"
    output_field = models.TextField()


def django_sessions(hashes: Collection[str]) -> QuerySet[Session]:
    """Django's rows of the sessions whose keys have these hashes. It reads them all: asked for few, and rarely."""
    return Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(hash__in=list(hashes))


class PersonSession(models.Model):
    """One session, by the SHA-256 of its key: who gets this table gets no session.

    `sign_in_method` is a code of `fleet.accounts.text.WAYS`; `browser` and `system` are names out of
    `fleet.accounts.sessions`. `address` and `signed_in_at` are those of the login, empty where it was before 0.2.0;
    `last_address` is the address of the latest request. `last_seen_at` is accurate to a few minutes.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key_hash = models.TextField(unique=True)
    sign_in_method = models.TextField(blank=True, default="")
    browser = models.TextField(blank=True, default="")
    system = models.TextField(blank=True, default="")
    address = models.TextField(blank=True, default="")
    last_address = models.TextField(blank=True, default="")
    signed_in_at = models.DateTimeField(null=True, blank=True)
    last_seen_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["last_seen_at"], name="person_session_by_age")]

    def __str__(self) -> str:
        return f"session of {self.user_id}"


def open_sessions(rows: QuerySet[PersonSession], *, now: datetime) -> QuerySet[PersonSession]:
    """Of these the sessions that Django still knows. It reads all of its sessions, once."""
    known = Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(expire_date__gt=now)
    return rows.filter(Exists(known.filter(hash=OuterRef("key_hash"))))


def contents_of(keys: Collection[str], *, now: datetime) -> dict[str, str]:
    """The hash of what each of these sessions holds, by its key, without those that have ended. One query."""
    rows = Session.objects.filter(session_key__in=list(keys), expire_date__gt=now)
    return dict(rows.values_list("session_key", MD5(F("session_data"))))


def keys_by(*, people: Collection[int] = (), backend: str = "") -> list[str]:
    """The keys of Django's sessions of these accounts, and of those that began at this backend. It reads all sessions
    and decodes them, since Django keeps in no column whose they are: for what happens rarely.
    """
    wanted = {str(pk) for pk in people}
    held = ((row.pk, row.get_decoded()) for row in Session.objects.iterator(chunk_size=500))
    return [
        key
        for key, data in held
        if data.get(SESSION_KEY) in wanted or (backend and data.get(BACKEND_SESSION_KEY) == backend)
    ]


# Single sign-on: what a provider's roles and groups make of people here, and who has come from there.

CIPHER = Cipher("drydock refresh tokens")


class SignOnGrant(models.Model):
    """One line of the mapping: whoever's claim holds `value` is in `group`, in `scopes` (`[kind, pattern]` each)."""

    value = models.TextField(unique=True)
    group = models.TextField()
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(group__in=list(GROUPS)), name="sign_on_grant_group_known")]

    def __str__(self) -> str:
        return f"{self.value}: {self.group}"

    @property
    def grant(self) -> Grant:
        return Grant(self.value, self.group, tuple((kind, pattern) for kind, pattern in self.scopes))


class SignOn(models.Model):
    """An account at the provider, and whose it is here; nobody's while `user` is None: who was refused, or has only
    been announced.

    `subject` names it for good, `name` as it was called there last; `values` are the roles or groups of its last
    token. Sessions that began there end at `valid_until`. `next_check_at`: when the provider is queried again with
    the refresh token, which is encrypted; None where it is not. `refused` is the stored reason of the last refusal.
    """

    issuer = models.TextField()
    subject = models.TextField()
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="sign_on"
    )
    name = models.TextField(blank=True, default="")
    values = models.JSONField(default=list)
    refused = models.TextField(blank=True, default="")
    refresh_token = models.TextField(blank=True, default="")
    seen_at = models.DateTimeField(null=True, blank=True)
    linked_at = models.DateTimeField(null=True, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="sign_on_subject_once")]
        indexes = [
            models.Index(fields=["next_check_at"], condition=Q(next_check_at__isnull=False), name="sign_on_due"),
            models.Index(fields=["seen_at"], condition=Q(user=None), name="sign_on_strangers"),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.subject} at {self.issuer}"

    def keep_refresh_token(self, token: str) -> None:
        """Encrypted, for this row alone; an empty one is forgotten."""
        self.refresh_token = CIPHER.encrypt(token.encode(), of=self.subject) if token else ""

    def read_refresh_token(self) -> str:
        """Empty where there is none, or where no key that is known here reads it."""
        plain: Any = CIPHER.decrypt(self.refresh_token, of=self.subject) if self.refresh_token else None
        return plain.decode() if plain else ""
