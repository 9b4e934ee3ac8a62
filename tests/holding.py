"""Another session of Postgres that keeps rows locked, for the length of a block; and threads with a role's patience."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection, connections, models

from fleet.domain import db_timeouts
from fleet.models.driver import query
from tests.processes import wait_for


@contextmanager
def session() -> Iterator[psycopg.Connection[Any]]:
    """A session of its own on the database of this test; what it began is rolled back."""
    own = {name: value for name, value in connection.get_connection_params().items() if isinstance(value, str | int)}
    with psycopg.connect(
        **{name: own[name] for name in ("host", "port", "user", "password", "dbname") if name in own}
    ) as other:
        yield other
        other.rollback()


@contextmanager
def held(*rows: models.Model) -> Iterator[None]:
    """Lock these rows FOR UPDATE in another session."""
    with session() as other:
        for row in rows:
            key = row._meta.pk.column  # type: ignore[union-attr]
            other.execute(f"SELECT 1 FROM {row._meta.db_table} WHERE {key} = %s FOR UPDATE", [row.pk])  # type: ignore[arg-type]
        yield


@contextmanager
def blocked() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Yield a function that begins a call in another thread, and returns once this call waits for a lock. All of them
    have ended after the block, in which their locks are released.
    """
    begun = []

    def begin(call: Callable[[], object]) -> None:
        def run() -> None:
            try:
                call()
            finally:
                connections.close_all()

        begun.append(pool.submit(run))
        wait_for(is_lock_awaited, seconds=30, what="the call waits for a lock")

    with ThreadPoolExecutor() as pool:
        yield begin
        for one in begun:
            one.result(60)


def is_lock_awaited() -> bool:
    """Whether any session waits for a lock."""
    return bool(query("SELECT 1 FROM pg_locks WHERE NOT granted"))


@contextmanager
def as_patient_as(role: str) -> Iterator[None]:
    """This thread's connection waits as long as the role does."""
    connection.close()
    with db_timeouts.profile_in_use(role):
        connection.ensure_connection()
        yield
    connection.close()
