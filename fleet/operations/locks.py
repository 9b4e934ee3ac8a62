"""Postgres advisory locks that last until the end of the transaction, for cases in which no row can be locked.

Also changes lock timeouts where those of the thread's role (`fleet.domain.db_timeouts`) do not fit.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from django.db import models, transaction

from fleet.domain.db_timeouts import SHORT_LOCK_SECONDS
from fleet.domain.scheduling import AT_ONCE
from fleet.models.driver import query

# Rows taken and not settled within this time: their worker has died, or the row was quarantined.
TAKEN = timedelta(seconds=10)


class Lock(IntEnum):
    """Numbers of advisory locks. They only need to be unique in this database."""

    RECONCILE = 7_001_169
    # Of each service, or of each set that is in none.
    DECISIONS = 7_001_170
    RULES = 7_001_171
    SEAL = 7_001_172
    SIGNING_KEYS = 7_001_173
    PEOPLE = 7_001_174
    INVENTORY = 7_001_175
    ROUTER = 7_001_176
    CHANNELS = 7_001_177
    WATCHDOG = 7_001_178
    # Of each set.
    DRILLS = 7_001_180
    TROUBLES = 7_001_190
    BLIND_SPOTS = 7_001_191
    # Of each partitioned table.
    PARTITIONS = 7_001_196
    ARCHIVE = 7_001_192
    # Of each machine, by its vmId, which may have no row yet.
    ENROLMENTS = 7_001_197
    HANDOVERS = 7_001_199
    # Of each name in each set, which no machine may have yet.
    NAMES = 7_001_198


def take(lock: Lock, of: str = "") -> None:
    """Wait for this lock and take it. With `of`, take the separate lock for this name."""
    _call("pg_advisory_xact_lock", lock, of)


def try_take(lock: Lock, of: str = "") -> bool:
    """Take this lock if it is free, and return whether it was. With `of`, take the separate lock for this name."""
    return _call("pg_try_advisory_xact_lock", lock, of) is True


def _call(function: str, lock: Lock, of: str) -> object:
    # Without a name as release 0.1.0 takes it, which may run alongside this one during an upgrade.
    arguments = "(%s, hashtext(%s))" if of else "(%s)"
    return query(f"SELECT {function}{arguments}", *([lock.value, of] if of else [lock.value]))[0][0]


def take_free(lock: Lock, names: Sequence[str]) -> list[str]:
    """Take those of the locks for these names that are free. Return the names of taken locks in the given order."""
    rows = query(
        "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS given (name, place)"
        " WHERE pg_try_advisory_xact_lock(%s, hashtext(name)) ORDER BY place",
        list(names),
        lock.value,
    )
    return [name for (name,) in rows]


@contextmanager
def exclusively(lock: Lock) -> Iterator[bool]:
    """Take the lock for the `with` block, across transactions, and yield whether it was free.

    If the process dies, the lock is released with its connection.
    """
    ((is_free,),) = query("SELECT pg_try_advisory_lock(%s)", lock.value)
    try:
        yield is_free
    finally:
        if is_free:
            query("SELECT pg_advisory_unlock(%s)", lock.value)


@contextmanager
def short_lock_timeout() -> Iterator[None]:
    """Wait only briefly for locks in this part of a transaction.

    A failure rolls this part back. Foreign keys are checked at once instead of at the commit, where the failing row
    would be unknown.
    """
    ((before,),) = query("SELECT current_setting('lock_timeout')")
    query("SELECT set_config('lock_timeout', %s, true)", f"{SHORT_LOCK_SECONDS:g}s")
    query("SET CONSTRAINTS ALL IMMEDIATE")
    yield
    query("SELECT set_config('lock_timeout', %s, true)", before)


def no_timeouts() -> None:
    """Disable all timeouts until the end of this transaction."""
    query(
        "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true),"
        " set_config('idle_in_transaction_session_timeout', '0', true)"
    )


def make_due(rows: models.QuerySet[Any], *, pass_by: bool = False) -> None:
    """Let the next reconciliation check these rows. With `pass_by`, rows that another session has locked are
    skipped.
    """
    with transaction.atomic(savepoint=False):
        locked = rows.order_by("pk").select_for_update(skip_locked=pass_by, no_key=True, of=("self",))
        pks = list(locked.values_list("pk", flat=True))
        if pks:
            rows.model._default_manager.filter(pk__any=pks).update(next_check_at=AT_ONCE)


def take_due(
    table: type[models.Model],
    *,
    now: datetime,
    most: int,
    open_only: str = "true",
    besides: Collection[int] = (),
    ids_from: str = "",
    **values: list[str],
) -> list[int]:
    """Take up to `most` due rows, those due longest first, and return their ids. Other runs of reconciliation skip them
    for a while.

    Rows in `besides` and locked rows are skipped, so that no run of reconciliation waits. `open_only` is the condition
    of the index on `next_check_at`, `ids_from` a query of permitted ids; both are trusted SQL with the parameters
    `values`.
    """
    name = table._meta.db_table
    among = f"AND id IN ({ids_from})" if ids_from else ""
    # Chosen once: a joined query may be evaluated again for each row, with other results each time.
    rows = query(
        f"""
        WITH due AS MATERIALIZED (
            SELECT id FROM {name}
            WHERE {open_only} AND (next_check_at IS NULL OR next_check_at <= %(now)s)
                  AND NOT (id = ANY(%(besides)s::bigint[])) {among}
            ORDER BY next_check_at NULLS LAST, id LIMIT %(most)s FOR NO KEY UPDATE SKIP LOCKED)
        UPDATE {name} AS row SET next_check_at = %(taken)s FROM due WHERE row.id = due.id RETURNING row.id
        """,
        taken=now + TAKEN,
        now=now,
        besides=list(besides),
        most=most,
        **values,
    )
    return sorted(row_id for (row_id,) in rows)


def settle_due(table: type[models.Model], due: Mapping[int, datetime], *, now: datetime) -> None:
    """Set the next check of rows (by id) that were taken at the time `now`. Rows that changed since then remain due."""
    name = table._meta.db_table
    with transaction.atomic():
        query(
            f"""
            UPDATE {name} AS row SET next_check_at = given.next_check_at
            FROM (SELECT row.id, given.next_check_at
                  FROM unnest(%s::bigint[], %s::timestamptz[]) AS given (id, next_check_at)
                  JOIN {name} AS row ON row.id = given.id
                  WHERE row.next_check_at = %s ORDER BY row.id FOR NO KEY UPDATE OF row SKIP LOCKED) AS given
            WHERE row.id = given.id AND row.next_check_at = %s
            """,
            list(due),
            list(due.values()),
            now + TAKEN,
            now + TAKEN,
        )
