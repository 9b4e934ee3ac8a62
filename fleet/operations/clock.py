"""The current time for pages, API and tasks: the database's time, independent of this process's own clock.

A process whose clock is wrong by more than a second still knows the database's time and stores agents' reports. But it
neither decides nor sends, because other things on its server may be wrong as well.
"""

import asyncio
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from django.db import DatabaseError, InterfaceError

from fleet.domain import db_timeouts
from fleet.domain.clock import MOST_SKEW_SECONDS, DatabaseClock
from fleet.domain.reasons import Reason, Refused
from fleet.models import WrongClock, driver

# A reading that is older than this is taken again before anything is decided.
FRESH_SECONDS = 1.0
AGAIN_SECONDS = 0.1
# And an offset older than this is read again before the database's time is reported.
OLD_SECONDS = 5.0
# How often a process with a wrong clock records that.
RECORD_SECONDS = 5.0

log = structlog.get_logger(__name__)


class _Recorded:
    """When this process last recorded its wrong clock (monotonic time); None while the clock is right.

    `tried` is when it last tried to read an outdated reading again.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        self.process = 0
        self.tried = float("-inf")


_database = DatabaseClock()
_recorded = _Recorded()


def now() -> datetime:
    """Return the current time by the database's clock, never later than that clock.

    Reads the database's clock if the last reading is too old, except in an event loop. While the database is
    unavailable, one caller each second tries to read it, and the time is estimated from the last reading.
    """
    steady = time.monotonic()
    is_old = _database.age(steady) > OLD_SECONDS and not 0 <= steady - _recorded.tried < FRESH_SECONDS
    if is_old and not _in_event_loop():
        _recorded.tried = steady
        with suppress(DatabaseError, InterfaceError):
            measure()
    return _database.now(steady=time.monotonic(), own=datetime.now(UTC))


def skew() -> float:
    """Return by how many seconds this process's clock is ahead of the database's; negative if it is behind."""
    return _database.skew(steady=time.monotonic(), own=datetime.now(UTC))


def is_clock_correct() -> bool:
    """Return whether this process may decide and send, by the last reading. Runs no query, for threads that must not
    wait.
    """
    return abs(skew()) <= MOST_SKEW_SECONDS


def may_clock_decide() -> bool:
    """Return whether this process may decide and send, after reading the database's clock (at most once a second).

    Raises database errors.
    """
    # After a server was suspended, it is the reading that is wrong: a clock that seems wrong is read more often.
    if _database.age(time.monotonic()) > (FRESH_SECONDS if is_clock_correct() else AGAIN_SECONDS):
        measure()
    return is_clock_correct()


def require_correct_clock() -> None:
    """Raise Refused `clock-wrong` if this process's clock is wrong, so that it must not decide."""
    if not may_clock_decide():
        raise Refused("clock-wrong", Reason("clock-wrong", seconds=round(abs(skew()), 1)))


def measure() -> None:
    """Read the database's clock on this thread's connection. Record this process in the database if its own clock is
    wrong.

    Raises database errors.
    """
    with driver.cursor() as cursor:
        # The first statement on a connection waits for the connection, which would only widen the reading.
        asked = time.monotonic()
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
        answered = time.monotonic()
    if row is not None:
        _database.note(row[0], asked=asked, answered=answered)
    _record()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _record() -> None:
    """Update this process's row while its clock is wrong. When the clock is right again, the row expires."""
    steady, off = time.monotonic(), skew()
    if _recorded.process != os.getpid():
        # Of the process from which this one was forked.
        _recorded.process, _recorded.at = os.getpid(), None
    before = _recorded.at
    if abs(off) <= MOST_SKEW_SECONDS:
        if before is not None:
            log.info("clock.right_again")
        _recorded.at = None
        return
    if before is not None and 0 <= steady - before < RECORD_SECONDS:
        return
    if before is None:
        log.warning("clock.wrong", seconds=round(off, 3))
    _recorded.at = steady
    try:
        with driver.cursor() as cursor:
            cursor.execute(
                f"""
                INSERT INTO {WrongClock._meta.db_table} AS row (process, kind, skew_seconds, seen_at)
                VALUES (%s, coalesce(substring(current_setting('application_name') FROM %s), 'command'), %s,
                        clock_timestamp())
                ON CONFLICT (process) DO UPDATE SET kind = EXCLUDED.kind, skew_seconds = EXCLUDED.skew_seconds,
                    seen_at = EXCLUDED.seen_at
                """,
                [f"{os.getpid()}@{socket.gethostname()}", f"^{db_timeouts.PREFIX} (\\w+) ", off],
            )
    except DatabaseError as error:
        log.warning("clock.unrecorded", error=str(error).splitlines()[0])
        _recorded.at = None
