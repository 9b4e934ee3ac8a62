"""Browsers and systems, as far as what a browser says of itself tells them. It may say anything: no word of it is kept,
only names out of these tables.
"""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Q, QuerySet

from fleet.accounts.models import PersonSession, django_sessions, going_on, keys_by
from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, require_found
from fleet.domain.secrets import hash_of
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, CalendarFeed, JoinToken
from fleet.operations.rights import require, require_change, require_reach, user_named
from fleet.operations.timeline.entries import tell

# Nobody says more of itself than this in truth.
MOST_READ = 400
# The first that is found counts: nearly everybody claims to be Chrome or Safari as well.
BROWSERS = (
    ("Edg/", "Edge"),
    ("EdgA/", "Edge"),
    ("EdgiOS/", "Edge"),
    ("OPR/", "Opera"),
    ("Vivaldi/", "Vivaldi"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("FxiOS/", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("HeadlessChrome/", "Chromium"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-requests/", "a Python program"),
    ("Python-urllib/", "a Python program"),
)
SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
)


@dataclass(frozen=True, slots=True)
class Browser:
    """Names of a browser and of the system that it runs on; empty where nothing tells them."""

    browser: str = ""
    system: str = ""


def browser_of(said: str) -> Browser:
    """What this header `User-Agent` tells."""
    read = said[:MOST_READ]
    return Browser(_first(BROWSERS, read), _first(SYSTEMS, read))


def _first(names: tuple[tuple[str, str], ...], said: str) -> str:
    return next((name for sign, name in names if sign in said), "")


# Sessions of people in browsers: begun at each door, ended by their person or an admin.

# A session that goes on is noted so often, and what was noted is written so often.
NOTED_EVERY = timedelta(minutes=5)
WRITTEN_EVERY = 30.0
# Of how many a process knows when it noted them; beyond, it begins anew.
MOST_NOTED = 20_000
# How many rows of sessions that are over one run removes.
REMOVED = 500
LONGEST_ADDRESS = 64

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SeenSession:
    """One session, seen in a request."""

    user_id: int
    agent: str
    address: str
    at: datetime


class LastSeen:
    """When sessions were seen last, between two writes of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, datetime] = {}
        self._waiting: dict[str, SeenSession] = {}
        self._written = time.monotonic()

    def note(self, session_key: str, sight: SeenSession) -> None:
        """Nothing is asked of the database. Nothing at all is done within minutes of the last time."""
        key = hash_of(session_key)
        with self._lock:
            before = self._noted.get(key)
            if before is not None and sight.at - before < NOTED_EVERY:
                return
            if len(self._noted) >= MOST_NOTED:
                self._noted.clear()
            self._noted[key] = sight.at
            if len(self._waiting) < MOST_NOTED:
                self._waiting[key] = sight

    def write(self) -> int:
        """Write what was noted: one statement. How many sessions. While the database is away it waits on."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        try:
            _write(waiting)
        except IntegrityError:
            # Of an account that is not there, after a backup came back: it would keep all others back for ever.
            log.warning("sessions.not_noted", count=len(waiting))
            return 0
        except DatabaseError:
            with self._lock:
                self._waiting = waiting | self._waiting
            raise
        return len(waiting)

    def write_if_due(self) -> None:
        """Call `write` every 30 seconds at most, however often this is called."""
        if time.monotonic() - self._written >= WRITTEN_EVERY:
            self._written = time.monotonic()
            self.write()


last_seen = LastSeen()


def begin(*, user: User, session_key: str, way: str, agent: str, address: str, now: datetime) -> None:
    """Somebody has just come in, by this `way`."""
    told = browser_of(agent)
    known = {
        "user": user,
        "way": way,
        "browser": told.browser,
        "system": told.system,
        "address": address[:LONGEST_ADDRESS],
        "last_address": address[:LONGEST_ADDRESS],
        "began_at": now,
        "last_seen_at": now,
    }
    PersonSession.objects.update_or_create(key_hash=hash_of(session_key), defaults=known)


def moved(*, old_key: str, new_key: str) -> None:
    """The same session has another key now."""
    PersonSession.objects.filter(key_hash=hash_of(old_key)).update(key_hash=hash_of(new_key))


def left(*, session_key: str) -> None:
    """Somebody has logged out of it."""
    PersonSession.objects.filter(key_hash=hash_of(session_key)).delete()


@transaction.atomic
def end(*, actor: Actor, session_id: int, now: datetime, carried: ApiToken | None = None) -> PersonSession:
    """End one session (row id): one's own, or by an admin anybody's. Its next request is a stranger's, and its streams
    end. Raises Refused: `not-permitted`, `not-found`.
    """
    found = PersonSession.objects.select_for_update(of=("self",)).select_related("user").filter(pk=session_id).first()
    if found is None:
        # Who ends their own alone does not learn of which there are others.
        require_change(actor, own=False, carried=carried)
    row = require_found(found, "not-found", Reason("session-unknown"))
    _allowed(actor, row.user, carried)
    _end([row])
    _tell("session-ended", row.user, 1, actor=actor, now=now)
    return row


@transaction.atomic
def end_others(*, actor: Actor, session_key: str, now: datetime, carried: ApiToken | None = None) -> int:
    """End all of one's own sessions but the one with this key; how many. Raises Refused `not-permitted`."""
    _allowed(actor, actor.person, carried)
    return _end_of(actor.person, actor, now, but=session_key)


@transaction.atomic
def end_all(*, actor: Actor, username: str, now: datetime, carried: ApiToken | None = None) -> int:
    """End all of somebody's sessions, by an admin; how many. Raises Refused: `not-permitted`, `unknown-person`."""
    require(actor, Right.ADMINISTER)
    person = user_named(username)
    _allowed(actor, person, carried)
    return _end_of(person, actor, now)


def drop(person: User, *, but: str = "") -> None:
    """Inside a transaction that tells of something else: this person's sessions are over, but the one of this key."""
    _end(list(_but(PersonSession.objects.filter(user=person), but)))


def end_for_good(*, people: Collection[User] = (), backend: str = "") -> None:
    """Inside a transaction that records something else: end every session of these accounts, and every one that began
    at this backend, also those of which nothing else is known.
    """
    ids = [person.pk for person in people]
    if not ids and not backend:
        return
    keys = keys_by(people=ids, backend=backend)
    Session.objects.filter(pk__in=keys).delete()
    PersonSession.objects.filter(Q(user__in=ids) | Q(key_hash__in=[hash_of(key) for key in keys])).delete()


def forget_over(*, now: datetime) -> None:
    """What is known of sessions that are over goes, some at a time."""
    old = now - timedelta(seconds=settings.SESSION_COOKIE_AGE)
    over = PersonSession.objects.filter(last_seen_at__lt=old).order_by("last_seen_at")
    PersonSession.objects.filter(pk__in=list(over.values_list("pk", flat=True)[:REMOVED])).delete()


def _end_of(person: User, actor: Actor, now: datetime, *, but: str = "") -> int:
    rows = going_on(PersonSession.objects.select_for_update().filter(user=person), now=now)
    found = list(_but(rows, but))
    if found:
        _end(found)
        _tell("sessions-ended", person, len(found), actor=actor, now=now)
    return len(found)


def _but(rows: QuerySet[PersonSession], key: str) -> QuerySet[PersonSession]:
    return rows.exclude(key_hash=hash_of(key)) if key else rows


def _end(rows: Collection[PersonSession]) -> None:
    if not rows:
        return
    django_sessions([row.key_hash for row in rows]).delete()
    PersonSession.objects.filter(pk__in=[row.pk for row in rows]).delete()


def _allowed(actor: Actor, person: User, carried: ApiToken | None) -> None:
    own = actor.person == person
    require_change(actor, own=own, carried=carried)
    if not own:
        require_reach(actor, person)


def _tell(did: str, person: User, count: int, *, actor: Actor, now: datetime) -> None:
    before, after = {"sessions": count}, {"sessions": 0}
    tell(EntryKind.PERSON_CHANGED, actor, at=now, before=before, after=after, person=person.get_username(), did=did)


def _write(waiting: dict[str, SeenSession]) -> None:
    """A session that no door has told of, of an earlier release, is known from now on."""
    if not waiting:
        return
    rows = []
    # In one order, so that two processes that write the same ones wait for each other and never in a circle.
    for key, sight in sorted(waiting.items()):
        told, address = browser_of(sight.agent), sight.address[:LONGEST_ADDRESS]
        rows.append(
            PersonSession(
                key_hash=key,
                user_id=sight.user_id,
                browser=told.browser,
                system=told.system,
                last_address=address,
                last_seen_at=sight.at,
            )
        )
    PersonSession.objects.bulk_create(
        rows,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["key_hash"],
        update_fields=["last_address", "last_seen_at"],
    )


# What ends for good: a token with all that it made, and everything by which an account that was disabled signed in.
# Enabling the account again revives none of it.

# Of annexes: each ends what was made by a token that has ended.
END_MADE_WITH: list[Callable[..., None]] = []


def end_access(person: User, *, now: datetime, actor: Actor) -> None:
    """End every session, token and calendar of this account, inside the transaction that disables it."""
    end_for_good(people=[person])
    lasts = Q(expires_at=None) | Q(expires_at__gt=now)
    for token in ApiToken.objects.filter(lasts, user=person, revoked_at=None).select_related("user").order_by("pk"):
        revoke_token(token, actor=actor, now=now)
    for feed in CalendarFeed.objects.filter(user=person, ended_at=None).select_related("user").order_by("pk"):
        end_calendar(feed, actor=actor, now=now)


def revoke_token(token: ApiToken, *, actor: Actor, now: datetime) -> bool:
    """Revoke a token, with what was made by it, inside the caller's transaction. False where it has ended already."""
    if not ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
        return False
    tell(
        EntryKind.TOKEN_ENDED,
        actor,
        at=now,
        before={"token": token.prefix},
        after={"token": None},
        person=token.user.get_username(),
        name=token.name,
    )
    end_made_with(token, actor=actor, now=now)
    return True


def end_made_with(token: ApiToken, *, actor: Actor, now: datetime) -> None:
    """End what was made by a token that has ended: tokens, join tokens, and what annexes keep of it. Inside the
    caller's transaction.
    """
    for made in ApiToken.objects.filter(made_with=token, revoked_at=None).select_related("user").order_by("pk"):
        revoke_token(made, actor=actor, now=now)
    for join in JoinToken.objects.select_for_update().filter(made_with=token, revoked_at=None).order_by("pk"):
        JoinToken.objects.filter(pk=join.pk).update(revoked_at=now)
        before, after = {"ended_at": None}, {"ended_at": now}
        tell(EntryKind.JOIN_TOKEN_ENDED, actor, at=now, before=before, after=after, prefix=join.prefix)
    for end in END_MADE_WITH:
        end(token, actor=actor, now=now)


def end_calendar(feed: CalendarFeed, *, actor: Actor, now: datetime) -> bool:
    """End a calendar, inside the caller's transaction. False where it has ended already."""
    if not CalendarFeed.objects.filter(pk=feed.pk, ended_at=None).update(ended_at=now):
        return False
    tell(
        EntryKind.CALENDAR_ENDED,
        actor,
        at=now,
        before={"calendar": feed.prefix},
        after={"calendar": None},
        person=feed.user.get_username(),
        name=feed.name,
    )
    return True
