"""Another session of Postgres that keeps rows locked, for the length of a block; and threads with a role's patience."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection, models

from fleet.domain import db_timeouts


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
def as_patient_as(role: str) -> Iterator[None]:
    """This thread's connection waits as long as the role does."""
    connection.close()
    with db_timeouts.profile_in_use(role):
        connection.ensure_connection()
        yield
    connection.close()
