"""Sessions of people in browsers: what is known of each, beside Django's own row, which alone lets anybody in."""

from collections.abc import Collection
from datetime import datetime

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import models
from django.db.models import Exists, F, Func, OuterRef, QuerySet


class KeyHash(Func):
    """The SHA-256 of a session's key, as `fleet.domain.secrets.hash_of` makes it."""

    template = "encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex')"
    output_field = models.TextField()


def django_sessions(hashes: Collection[str]) -> QuerySet[Session]:
    """Django's rows of the sessions whose keys have these hashes. It reads them all: asked for few, and rarely."""
    return Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(hash__in=list(hashes))


class PersonSession(models.Model):
    """One session, by the SHA-256 of its key: who gets this table gets no session. `way` is how its person came in, a
    code of `fleet.wording.sessions.WAYS`; `browser` and `system` are names out of `fleet.domain.user_agents`.

    `address` and `began_at` are those of the login, empty where it was before 0.2.0; `last_address` is from where it
    was seen last. When that was, is known to a few minutes.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key_hash = models.TextField(unique=True)
    way = models.TextField(blank=True, default="")
    browser = models.TextField(blank=True, default="")
    system = models.TextField(blank=True, default="")
    address = models.TextField(blank=True, default="")
    last_address = models.TextField(blank=True, default="")
    began_at = models.DateTimeField(null=True, blank=True)
    last_seen_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["last_seen_at"], name="person_session_by_age")]

    def __str__(self) -> str:
        return f"session of {self.user_id}"


def going_on(rows: QuerySet[PersonSession], *, now: datetime) -> QuerySet[PersonSession]:
    """Of these the sessions that Django still knows. It reads all of its sessions, once."""
    known = Session.objects.annotate(hash=KeyHash(F("session_key"))).filter(expire_date__gt=now)
    return rows.filter(Exists(known.filter(hash=OuterRef("key_hash"))))
