"""Browser sessions of users: the record of each session, with browser and operating system, and the end of sessions.

A User-Agent header can contain any text, so only names from the tables below are stored.
"""

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Model, Q, QuerySet

from fleet.accounts.models import PersonSession, django_sessions, keys_by, open_sessions
from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, require_found
from fleet.domain.secrets import hash_of
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, CalendarFeed, JoinToken
from fleet.operations.audited import Audit, delete_audited
from fleet.operations.machines.entrance import JOIN_TOKENS
from fleet.operations.rights import require, require_change, require_reach, user_named
from fleet.operations.timeline.entries import tell

M = TypeVar("M", bound=Model)


def record_change(did: str, person: User, actor: Actor, now: datetime, *, before: Any, after: Any, **data: Any) -> None:
    """Write a timeline entry about a change of an account, inside the transaction of the change. `did` is a code of
    `accounts.text.PERSON_CHANGES`.
    """
    name = person.get_username()
    tell(EntryKind.PERSON_CHANGED, actor, at=now, before=before, after=after, person=name, did=did, **data)


# Characters of the header that are read; real headers are shorter.
MOST_READ = 400
# The first match counts: most browsers also claim to be Chrome or Safari.
BROWSERS = {
    "Edge": ("Edg/", "EdgA/", "EdgiOS/"),
    "Opera": ("OPR/",),
    "Vivaldi": ("Vivaldi/",),
    "Samsung Internet": ("SamsungBrowser/",),
    "Firefox": ("FxiOS/", "Firefox/"),
    "Chromium": ("HeadlessChrome/", "Chromium/"),
    "Chrome": ("CriOS/", "Chrome/"),
    "Safari": ("Safari/",),
    "curl": ("curl/",),
    "a Python program": ("python-requests/", "Python-urllib/"),
}
SYSTEMS = {
    "Android": ("Android",),
    "iOS": ("iPhone",),
    "iPadOS": ("iPad",),
    "ChromeOS": ("CrOS",),
    "Windows": ("Windows",),
    "macOS": ("Macintosh",),
    "Linux": ("Linux",),
}


def browser_of(user_agent: str) -> dict[str, str]:
    """Return the browser and operating system that a User-Agent header names, or an empty dictionary if none is
    known.
    """
    read = user_agent[:MOST_READ]
    return {
        column: next((name for name, signs in names.items() if any(sign in read for sign in signs)), "")
        for column, names in (("browser", BROWSERS), ("system", SYSTEMS))
    }


# Browser sessions: every sign-in method starts them, their user or an administrator ends them.

# Intervals in seconds: of recording a used session in memory, and of writing the records to the database.
NOTED_EVERY = timedelta(minutes=5)
WRITTEN_EVERY = 30.0
# Limit of sessions that one process remembers; above it, the memory is cleared.
MOST_NOTED = 20_000
# Expired sessions, and records of such sessions, that one run removes.
SESSIONS_REMOVED, REMOVED = 100, 500
LONGEST_ADDRESS = 64

log = structlog.get_logger(__name__)


class LastSeen:
    """Times at which this process last saw each session, collected in memory until they are written to the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, datetime] = {}
        self._waiting: dict[str, PersonSession] = {}
        self._written = time.monotonic()

    def note(self, session_key: str, *, user_id: int, agent: str, address: str, now: datetime) -> None:
        """Record a request of a session in memory, at most once every 5 minutes for each session."""
        key = hash_of(session_key)
        with self._lock:
            before = self._noted.get(key)
            if before is not None and now - before < NOTED_EVERY:
                return
            if len(self._noted) >= MOST_NOTED:
                self._noted.clear()
            self._noted[key] = now
            if len(self._waiting) < MOST_NOTED:
                # Also lists a session that began in an earlier release.
                row = PersonSession(key_hash=key, user_id=user_id, last_seen_at=now, **browser_of(agent))
                row.last_address = address[:LONGEST_ADDRESS]
                self._waiting[key] = row

    def write(self) -> int:
        """Write the collected times to the database with one statement. Return how many were written. If the database
        is unavailable, they stay in memory for the next call.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        try:
            # A fixed order: two processes that write the same rows wait for each other without a deadlock.
            PersonSession.objects.bulk_create(
                [row for _, row in sorted(waiting.items())],
                batch_size=500,
                update_conflicts=True,
                unique_fields=["key_hash"],
                update_fields=["last_address", "last_seen_at"],
            )
        except IntegrityError:
            # The account does not exist after a restore. Keeping the row would block all others permanently.
            log.warning("sessions.not_noted", count=len(waiting))
            return 0
        except DatabaseError:
            with self._lock:
                self._waiting = waiting | self._waiting
            raise
        return len(waiting)

    def write_if_due(self) -> None:
        """Call `write` if the last call was at least 30 seconds ago."""
        if time.monotonic() - self._written >= WRITTEN_EVERY:
            self._written = time.monotonic()
            self.write()


last_seen = LastSeen()


def begin(*, user: User, session_key: str, way: str, agent: str, address: str, now: datetime) -> None:
    """Record a new browser session. `way` is the sign-in method, `agent` the User-Agent header."""
    place = address[:LONGEST_ADDRESS]
    known = {"sign_in_method": way, "address": place, "last_address": place, "signed_in_at": now, "last_seen_at": now}
    known |= {"user": user, **browser_of(agent)}
    PersonSession.objects.update_or_create(key_hash=hash_of(session_key), defaults=known)


def moved(*, old_key: str, new_key: str) -> None:
    """Record that the key of a session has changed. Django does this for example after a password change."""
    PersonSession.objects.filter(key_hash=hash_of(old_key)).update(key_hash=hash_of(new_key))


def left(*, session_key: str) -> None:
    """Delete the record of a session after its user signed out."""
    PersonSession.objects.filter(key_hash=hash_of(session_key)).delete()


@transaction.atomic
def end(*, actor: Actor, session_id: int, now: datetime) -> PersonSession:
    """End the session with this row id. Users may end their own sessions, administrators all. The next request of the
    session is anonymous, and its streams end. Raises Refused: `not-permitted`, `not-found`.
    """
    session = PersonSession.objects.select_for_update(of=("self",)).select_related("user").filter(pk=session_id).first()
    if session is None:
        # A user who may end only their own does not learn which sessions of others exist.
        require_change(actor, own=False)
    row = require_found(session, "not-found", Reason("session-unknown"))
    _require_allowed(actor, row.user)
    _end([row])
    record_change("session-ended", row.user, actor, now, before={"sessions": 1}, after={"sessions": 0})
    return row


@transaction.atomic
def end_all(*, actor: Actor, now: datetime, username: str | None = None, but: str = "") -> int:
    """End all sessions of the actor, or of the user `username` if the actor is an administrator. The session with the
    key `but` stays open. Return the number of ended sessions. Raises Refused: `not-permitted`, `unknown-person`.
    """
    if username is not None:
        require(actor, Right.ADMINISTER)
    person = actor.person if username is None else user_named(username)
    _require_allowed(actor, person)
    rows = list(_but(open_sessions(PersonSession.objects.select_for_update().filter(user=person), now=now), but))
    if rows:
        _end(rows)
        record_change("sessions-ended", person, actor, now, before={"sessions": len(rows)}, after={"sessions": 0})
    return len(rows)


def drop(person: User, *, but: str = "") -> None:
    """End all sessions of a user, except the session with the key `but`. Call this inside the transaction that records
    the reason.
    """
    _end(list(_but(PersonSession.objects.filter(user=person), but)))


def end_for_good(people: Collection[User], *, backend: str = "") -> None:
    """End every session of these accounts, and every session that began with this authentication backend, also those
    without a record. Call this inside the transaction that records the reason.
    """
    ids = [person.pk for person in people]
    if not ids and not backend:
        return
    keys = keys_by(ids, backend=backend)
    Session.objects.filter(pk__in=keys).delete()
    PersonSession.objects.filter(Q(user__in=ids) | Q(key_hash__in=[hash_of(key) for key in keys])).delete()


def forget_sessions(*, now: datetime) -> None:
    """Delete a limited number of expired sessions and of their records. Each anonymous request for a passkey challenge
    creates a session.
    """
    over = Session.objects.filter(expire_date__lt=now)
    Session.objects.filter(pk__in=list(over.values_list("pk", flat=True)[:SESSIONS_REMOVED])).delete()
    old = now - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    rows = PersonSession.objects.filter(last_seen_at__lt=old).order_by("last_seen_at")
    PersonSession.objects.filter(pk__in=list(rows.values_list("pk", flat=True)[:REMOVED])).delete()


def _but(rows: QuerySet[PersonSession], key: str) -> QuerySet[PersonSession]:
    return rows.exclude(key_hash=hash_of(key)) if key else rows


def _end(rows: Collection[PersonSession]) -> None:
    if not rows:
        return
    django_sessions([row.key_hash for row in rows]).delete()
    PersonSession.objects.filter(pk__in=[row.pk for row in rows]).delete()


def _require_allowed(actor: Actor, person: User) -> None:
    require_change(actor, own=actor.person == person)
    if actor.person != person:
        require_reach(actor, person)


# Permanent revocation: a token with everything that it created, and all access of a disabled account. Enabling the
# account again restores none of it.

# Registered by annexes: each ends its objects that an ended token created.
END_MADE_WITH: list[Callable[..., None]] = []


def end_access(person: User, *, now: datetime, actor: Actor) -> None:
    """End every session, token and calendar feed of an account. Call this inside the transaction that disables the
    account.
    """
    end_for_good([person])
    lasts = Q(expires_at=None) | Q(expires_at__gt=now)
    for token in locked(ApiToken.objects.filter(lasts, user=person, revoked_at=None)):
        revoke_token(token, actor=actor, now=now)
    for feed in locked(CalendarFeed.objects.filter(user=person, ended_at=None)):
        delete_audited(feed, actor, CALENDARS, now=now, ended_at=now)


def _names(row: Any) -> dict[str, str]:
    return {"person": row.user.get_username(), "name": row.name}


# Users create and end their own, and a disabled account loses all of them: each operation checks who may do it.
_audit = partial(Audit, data=_names, right=None)
TOKENS = _audit(
    ("prefix", "scopes", "expires_at", "allowed_from"), created=EntryKind.TOKEN_CREATED, deleted=EntryKind.TOKEN_ENDED
)
CALENDARS = _audit(
    ("prefix", "set_pattern", "service"), created=EntryKind.CALENDAR_MADE, deleted=EntryKind.CALENDAR_ENDED
)


def revoke_token(token: ApiToken, *, actor: Actor, now: datetime) -> None:
    """Revoke a token and everything that was created with it. The caller has locked the row."""
    delete_audited(token, actor, TOKENS, now=now, revoked_at=now)
    end_made_with(token, actor=actor, now=now)


def locked(rows: QuerySet[M]) -> QuerySet[M]:
    """Lock these rows (tokens or calendar feeds) for update, and load their users with them."""
    return rows.select_for_update(of=("self",)).select_related("user").order_by("pk")


def end_made_with(token: ApiToken, *, actor: Actor, now: datetime) -> None:
    """Revoke everything that was created with a token: API tokens, join tokens, and objects of optional apps. Call this
    inside the transaction that ends the token.
    """
    for made in locked(ApiToken.objects.filter(made_with=token, revoked_at=None)):
        revoke_token(made, actor=actor, now=now)
    for join in JoinToken.objects.select_for_update().filter(made_with=token, revoked_at=None).order_by("pk"):
        delete_audited(join, actor, JOIN_TOKENS, now=now, revoked_at=now)
    for end in END_MADE_WITH:
        end(token, actor=actor, now=now)
