"""Browser sessions of users, in addition to Django's session row, which alone grants access; and accounts of single
sign-on.
"""

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
from fleet.domain.sign_on import LONGEST_VALUE, Grant
from fleet.models.cipher import Cipher
from fleet.models.fields import Line
from fleet.models.people import ScopeList


class KeyHash(Func):
    """SHA-256 of a session key in SQL, equal to `fleet.domain.secrets.hash_of`."""

    template = "encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex')"
    output_field = models.TextField()


def django_sessions(hashes: Collection[str]) -> QuerySet[Session]:
    """Return Django's rows of the sessions whose keys have these hashes. This reads the whole table: call it rarely."""
    return Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(hash__in=list(hashes))


class PersonSession(models.Model):
    """One browser session, by the SHA-256 of its key: reading this table gives access to no session.

    `sign_in_method` is a code of `fleet.accounts.text.WAYS`; `browser` and `system` are names from
    `fleet.accounts.sessions`. `address` and `signed_in_at` are those of the sign-in, empty for sessions from before
    0.2.0. `last_address` is the address of the latest request. `last_seen_at` is accurate to a few minutes.
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
    """Return those of these sessions that are open in Django. This reads all of Django's sessions once."""
    known = Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(expire_date__gt=now)
    return rows.filter(Exists(known.filter(hash=OuterRef("key_hash"))))


def contents_of(keys: Collection[str], *, now: datetime) -> dict[str, str]:
    """Return a hash of the content of each of these sessions, by key, without expired ones. One query."""
    rows = Session.objects.filter(session_key__in=list(keys), expire_date__gt=now)
    return dict(rows.values_list("session_key", MD5(F("session_data"))))


def keys_by(*, people: Collection[int] = (), backend: str = "") -> list[str]:
    """Return the keys of Django's sessions of these accounts, and of those that began at this backend. This reads and
    decodes all sessions, because Django has no column for the user: call it rarely.
    """
    wanted = {str(pk) for pk in people}
    held = ((row.pk, row.get_decoded()) for row in Session.objects.iterator(chunk_size=500))
    return [
        key
        for key, data in held
        if data.get(SESSION_KEY) in wanted or (backend and data.get(BACKEND_SESSION_KEY) == backend)
    ]


# Single sign-on: the mapping of the provider's roles and groups, and the accounts that signed in there.

CIPHER = Cipher("drydock refresh tokens")
ROLE = "A role or group, as the token states it."
WHERE = "Sets in which they may act; none: everywhere."


class SignOnGrant(models.Model):
    """One line of the mapping: users whose claim contains `value` get `group` and `scopes` (`[kind, pattern]` each)."""

    value = Line(
        "role or group",
        max_length=LONGEST_VALUE,
        unique=True,
        help_text=ROLE,
    )
    group = Line(
        "group in Drydock",
        choices=[(group, group) for group in GROUPS],
        help_text="The group that the role or group gives here.",
    )
    scopes = ScopeList("may act in", help_text=WHERE)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(group__in=list(GROUPS)), name="sign_on_grant_group_known")]

    def __str__(self) -> str:
        return f"{self.value}: {self.group}"

    @property
    def grant(self) -> Grant:
        return Grant(self.value, self.group, tuple((kind, pattern) for kind, pattern in self.scopes))


class SignOn(models.Model):
    """An account at the provider and its user here. `user` is None for an account that was refused or only announced.

    `subject` identifies it permanently; `name` is its latest name there; `values` are the roles or groups of its
    last token. Its sessions end at `valid_until`. `next_check_at` is the time of the next query with the refresh
    token, which is encrypted; None if there is none. `refused` is the stored reason of the last refusal.
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
        """Store a refresh token, encrypted for this row alone; an empty one deletes it."""
        self.refresh_token = CIPHER.encrypt(token.encode(), of=self.subject) if token else ""

    def read_refresh_token(self) -> str:
        """Return the refresh token; empty if there is none or no known key decrypts it."""
        plain: Any = CIPHER.decrypt(self.refresh_token, of=self.subject) if self.refresh_token else None
        return plain.decode() if plain else ""
