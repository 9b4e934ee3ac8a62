"""Advisory locks of Postgres, held until the transaction ends: they keep two apart where no row is there to lock. And
how long a transaction waits for locks and answers where its role's patience (`fleet.domain.patience`) does not fit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from django.db import connection

from fleet.domain.patience import IMPATIENT


class Lock(IntEnum):
    """Any numbers will do, as long as nothing else in this database uses them."""

    RECONCILE = 7_001_169
    # Of each service, or of each set that is in none.
    DECISIONS = 7_001_170
    RULES = 7_001_171
    SEAL = 7_001_172
    SIGNING_KEYS = 7_001_173
    PEOPLE = 7_001_174
    INVENTORY = 7_001_175
    # Of each set.
    DRILLS = 7_001_180


def take(lock: Lock, of: str = "") -> None:
    """Wait for this lock, or for the one of it that belongs to this name."""
    with connection.cursor() as cursor:
        if of:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [lock.value, of])
        else:
            # As 0.1.0 takes it, which may run beside this one for a while.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock.value])


def take_if_free(lock: Lock) -> bool:
    """Whether it was free and is held now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [lock.value])
        return bool(cursor.fetchone() == (True,))


@contextmanager
def impatient() -> Iterator[None]:
    """Within a transaction: meanwhile wait a moment for a lock, and no longer. What fails is rolled back with it.

    Rows that are pointed to are locked at once, and no longer at the commit, where nobody could tell whose they were.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        (before,) = cursor.fetchone()
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{IMPATIENT:g}s"])
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])


def take_your_time() -> None:
    """Until the end of this transaction nothing is cut short."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),"
            " set_config('idle_in_transaction_session_timeout', '0', true)"
        )
