"""Failed logins are counted: who guesses passwords waits, by name and by address.

A count is taken before the password is looked at, so that guesses side by side do not slip through, and given back when
it was right. A name alone is limited much later than a name from one address: else anybody could lock out whoever is on
call by failing in their name.
"""

import hashlib
from datetime import datetime, timedelta

import structlog
from django.db import connection
from django.db.models import F

from fleet.models import LoginAttempts

WINDOW = timedelta(minutes=5)
# Failures within the window after which it is over for the rest of it.
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 50
PER_NAME = 100
# How many old counts a new one removes.
REMOVED = 100

log = structlog.get_logger(__name__)


def begin(*, username: str, address: str, now: datetime) -> float:
    """Count one attempt; 0.0 when it may be made, else the seconds to wait. Nothing more is counted meanwhile."""
    limits = _limits(username, address)
    waits = [
        (row.since + WINDOW - now).total_seconds()
        for row in LoginAttempts.objects.filter(key__in=list(limits), since__gt=now - WINDOW)
        if row.count >= limits[row.key]
    ]
    if waits:
        # Neither the name nor the password: either may be the other, typed into the wrong field.
        log.warning("login.throttled", address=address, seconds=round(max(waits)))
        return max(waits)
    taken = [_take(key, now) > limit for key, limit in sorted(limits.items())]
    return WINDOW.total_seconds() if any(taken) else 0.0


def succeeded(*, username: str, address: str) -> None:
    """The password was right: the attempt was none that counts, and the name is known at this address."""
    keys = _limits(username, address)
    pair = _key("both", f"{username.casefold()}\n{address}")
    LoginAttempts.objects.filter(key=pair).delete()
    LoginAttempts.objects.filter(key__in=[key for key in keys if key != pair], count__gt=0).update(count=F("count") - 1)


def _limits(username: str, address: str) -> dict[str, int]:
    name = username.casefold()
    return {
        _key("both", f"{name}\n{address}"): PER_NAME_AND_ADDRESS,
        _key("address", address): PER_ADDRESS,
        _key("name", name): PER_NAME,
    }


def _key(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()


def _take(key: str, now: datetime) -> int:
    """Count one more in one statement; how many there are in this window."""
    table = LoginAttempts._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {table} AS known (key, count, since) VALUES (%s, 1, %s)
            ON CONFLICT (key) DO UPDATE SET
                count = CASE WHEN known.since <= %s THEN 1 ELSE known.count + 1 END,
                since = CASE WHEN known.since <= %s THEN excluded.since ELSE known.since END
            RETURNING count
            """,
            [key, now, now - WINDOW, now - WINDOW],
        )
        row = cursor.fetchone()
    count = int(row[0]) if row else 0
    if count == 1:
        old = LoginAttempts.objects.filter(since__lt=now - 2 * WINDOW).values_list("pk", flat=True)[:REMOVED]
        LoginAttempts.objects.filter(pk__in=list(old), since__lt=now - 2 * WINDOW).delete()
    return count
