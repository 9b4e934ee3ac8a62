"""The time at which edges act: the database's, whatever the clock of this process shows.

A process whose clock differs by more than a second still knows the database's time, and stores agents' reports. It
neither decides nor sends: with a clock like that, other things on its server are wrong as well.
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
    """The latest clock record of this process: its steady-clock time, or None when the clock was right.

    `tried` is when the process last tried to refresh an old offset from the database.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        self.process = 0
        self.tried = float("-inf")


_database = DatabaseClock()
_recorded = _Recorded()


def now() -> datetime:
    """The time by the database's clock, never later than that. It reads the database's clock first where it has not
    for a while, except in an event loop, which must not wait. While the database is unavailable, one caller a second
    tries, and the others count on from the last reading.
    """
    steady = time.monotonic()
    is_old = _database.age(steady) > OLD_SECONDS and not 0 <= steady - _recorded.tried < FRESH_SECONDS
    if is_old and not _in_event_loop():
        _recorded.tried = steady
        with suppress(DatabaseError, InterfaceError):
            measure()
    return _database.now(steady=time.monotonic(), own=datetime.now(UTC))


def skew() -> float:
    """Seconds by which this process's clock is ahead of the database's; negative where it is behind."""
    return _database.skew(steady=time.monotonic(), own=datetime.now(UTC))


def is_clock_correct() -> bool:
    """Whether this process may decide and send, by the last reading. For threads that must not wait."""
    return abs(skew()) <= MOST_SKEW_SECONDS


def may_clock_decide() -> bool:
    """Whether this process may decide and send. It reads the database's clock again where it has not for a second.

    Raises what the database raises.
    """
    if _is_stale():
        measure()
    return is_clock_correct()


def require_correct_clock() -> None:
    """Raise Refused `clock-wrong` where this process may not decide."""
    if not may_clock_decide():
        raise Refused("clock-wrong", Reason("clock-wrong", seconds=round(abs(skew()), 1)))


def measure() -> None:
    """Read the database's clock on this thread's connection, and record it while this process's own clock is wrong.

    Raises what the database raises.
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


def _is_stale() -> bool:
    """Whether the last reading is too old. A clock that seems wrong is read more often: where a server was suspended,
    it is the reading that is out of date.
    """
    return _database.age(time.monotonic()) > (FRESH_SECONDS if is_clock_correct() else AGAIN_SECONDS)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _record() -> None:
    """Keep the row of this process up to date while its clock is wrong. Once it is right again, its row goes stale."""
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
