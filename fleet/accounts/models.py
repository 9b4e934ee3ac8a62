"""Tables of accounts: browser sessions of users, and accounts at the single sign-on provider. Only Django's own session
row grants access.
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
from fleet.models.rows import Row


class KeyHash(Func):
    """SHA-256 of a session key in SQL, equal to `fleet.domain.secrets.hash_of`."""

    template = "encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex')"
    output_field = models.TextField()


def django_sessions(hashes: Collection[str]) -> QuerySet[Session]:
    """Return the rows of Django's session table whose keys have these SHA-256 hashes. This reads the whole table: call
    it rarely.
    """
    return Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(hash__in=list(hashes))


class PersonSession(Row):
    """One browser session, identified by the SHA-256 of its session key. A person who can read this table cannot use
    the sessions.

    `sign_in_method` is a code of `fleet.accounts.text.WAYS`; `browser` and `system` are names from
    `fleet.accounts.sessions`. `address` and `signed_in_at` describe the sign-in and are empty for sessions from before
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


def open_sessions(rows: QuerySet[PersonSession], *, now: datetime) -> QuerySet[PersonSession]:
    """Filter these sessions to those that have not ended and not expired in Django. This reads all of Django's sessions
    once.
    """
    known = Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(expire_date__gt=now)
    return rows.filter(Exists(known.filter(hash=OuterRef("key_hash"))))


def contents_of(keys: Collection[str], *, now: datetime) -> dict[str, str]:
    """Return an MD5 hash of the content of each session by session key, without expired sessions. Callers compare the
    hashes to detect changes. One query.
    """
    rows = Session.objects.filter(session_key__in=list(keys), expire_date__gt=now)
    return dict(rows.values_list("session_key", MD5(F("session_data"))))


def keys_by(people: Collection[int], *, backend: str = "") -> list[str]:
    """Return the keys of all Django sessions of these accounts (user ids), and of all sessions that began with this
    authentication backend. This decodes all sessions, because Django has no column for the user: call it rarely.
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


class SignOnGrant(Row):
    """One entry of the single sign-on mapping: users with the role or group `value` get `group` and `scopes`. Each
    scope is `[kind, pattern]`.
    """

    value = Line("role or group", max_length=LONGEST_VALUE, unique=True, help_text=ROLE)
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


class SignOn(Row):
    """An account at the single sign-on provider, and the Drydock user linked to it. `user` is None if the account was
    refused or was only linked in advance.

    `subject` identifies it permanently; `name` is its latest name there; `values` are the roles or groups of its last
    token. The sessions end at `valid_until`. `next_check_at` is the time of the next check with the encrypted refresh
    token, or None without one. `refused` is the reason of the last refusal.
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

    def keep_refresh_token(self, token: str) -> None:
        """Encrypt and store a refresh token for this row. An empty string deletes the stored token."""
        self.refresh_token = CIPHER.encrypt(token.encode(), of=self.subject) if token else ""

    def read_refresh_token(self) -> str:
        """Return the decrypted refresh token, or an empty string if none is stored or no configured SECRET_KEY decrypts
        it.
        """
        plain: Any = CIPHER.decrypt(self.refresh_token, of=self.subject) if self.refresh_token else None
        return plain.decode() if plain else ""
