"""The database driver's own cursor, for what every commit of reports repeats.

Django writes parameters into the text of a statement, which is then quoted here and read and planned there each time.
Here each statement is prepared once for a connection, and its parameters travel beside it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

import psycopg
from django.db import connection
from django.db.models import JSONField, Model

# A statement is prepared when it is met so many times.
PREPARED_AFTER = 2


def array(values: Iterable[Any]) -> str:
    """A list as Postgres reads one, for a parameter with a cast as `%s::text[]`: of numbers, booleans, times, texts,
    bytes and None. The driver's own way, which asks of each element what it is, costs several times as much.
    """
    return f"{{{','.join([_element(value) for value in values])}}}"


def _element(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        # Hexadecimal digits need no quotes, but their mark does.
        return f'"\\\\x{value.hex()}"'
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


@contextmanager
def cursor() -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """On this thread's connection and in its transaction; what goes wrong is raised as Django raises it."""
    connection.ensure_connection()
    driver: psycopg.Connection[tuple[Any, ...]] = connection.connection
    driver.prepare_threshold = PREPARED_AFTER
    with connection.wrap_database_errors, psycopg.Cursor(driver) as found:
        yield found


def upsert(rows: Sequence[Model], *, unique: Sequence[str]) -> None:
    """Write these rows of one model, in this order, each also over the one that has the same `unique` columns; what was
    there keeps its id. No field is filled in on the way, as `auto_now` would. One statement.
    """
    if not rows:
        return
    columns, sql = _upsert(type(rows[0]), tuple(unique))
    lists = []
    for name, is_json in columns:
        values = [getattr(row, name) for row in rows]
        lists.append(array([json.dumps(value) for value in values] if is_json else values))
    with cursor() as found:
        found.execute(sql, lists)


@cache
def _upsert(model: type[Model], unique: tuple[str, ...]) -> tuple[list[tuple[str, bool]], bytes]:
    """The attributes of a row, each with whether it goes as JSON, and the statement that takes a list for each."""
    fields = [field for field in model._meta.concrete_fields if not field.primary_key]
    # As `foreign` is, a column may be a word of SQL.
    names = {field.column: f'"{field.column}"' for field in fields}
    lists = ", ".join(f"%s::{field.db_type(connection)}[]" for field in fields)
    changed = ", ".join(f"{name} = EXCLUDED.{name}" for column, name in names.items() if column not in unique)
    sql = (
        f"INSERT INTO {model._meta.db_table} ({', '.join(names.values())}) SELECT * FROM unnest({lists})"
        f" ON CONFLICT ({', '.join(unique)}) DO UPDATE SET {changed}"
    )
    return [(field.attname, isinstance(field, JSONField)) for field in fields], sql.encode()
