"""Idle ticks: without due work a tick runs a fixed number of queries and reads no open row."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bench.tick import DUE, populate
from fleet.operations import reconcile
from tests.factories import operator

pytestmark = pytest.mark.django_db

# Of this transaction, in which the whole test plays.
READ = """SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
    FROM pg_stat_xact_user_tables WHERE relname LIKE 'fleet!_%' ESCAPE '!'"""
EVENTS, MACHINES, OTHERS = 110, 2, 50
# Postgres's planner reads the first and the last entry of an index.
PLANNING = 10


def test_an_idle_tick_reads_nothing_that_is_open() -> None:
    with connection.cursor() as cursor:
        populate(cursor.execute, person=operator().pk, events=EVENTS, machines=MACHINES, others=OTHERS)
        while _due(cursor):
            reconcile.advance(now=timezone.now(), via="beat")
        cursor.execute("ANALYZE")
        # A small table is read from end to end; the planner takes these for large ones.
        cursor.execute("UPDATE pg_class SET reltuples = 1000 * reltuples WHERE relname LIKE 'fleet!_%' ESCAPE '!'")
        # What Postgres said of its tables before that look is kept for the whole of a transaction.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        before = _read(cursor)
        with CaptureQueriesContext(connection) as asked:
            did = reconcile.advance(now=timezone.now(), via="beat")
        read = {table: rows - before.get(table, 0) for table, rows in _read(cursor).items()}
    assert (did.ran, did.looked_at) == (True, 0)
    # Who has turned is found by one look at everybody's presence.
    assert read.pop("fleet_presencerow") <= EVENTS * MACHINES + PLANNING
    assert {table: rows for table, rows in read.items() if rows > PLANNING} == {}
    # Two of them are the savepoint that a transaction is in a test.
    assert len(asked) <= 30


def _due(cursor: Any) -> int:
    cursor.execute(DUE)
    return int(cursor.fetchone()[0])


def _read(cursor: Any) -> dict[str, int]:
    cursor.execute(READ)
    return dict(cursor.fetchall())
