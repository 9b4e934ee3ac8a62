"""Statements by the database driver's own cursor, for what every commit of reports repeats.

Django inserts parameters into the SQL text, so that each statement is quoted, parsed and planned every time. This
module prepares each statement once for each connection and sends parameters separately.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from django.db.models import Field, JSONField, Model
from django.db.models.expressions import DatabaseDefault
from psycopg.sql import Composable

# A statement is prepared at its second use.
PREPARED_AFTER = 2
KNOWN = (str, datetime, bool, int, float, UUID)


def query(statement: str | Composable, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
    """Run a statement through Django's cursor and return all rows; none if the statement has no result."""
    with connection.cursor() as cursor:
        cursor.execute(statement, named or values or None)
        rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
    return rows


def array(values: Iterable[Any]) -> str:
    """Return the values as a Postgres array literal, for a parameter with a cast such as `%s::text[]`.

    Supports numbers, booleans, times, texts, bytes, UUIDs and None. It is several times faster than the driver's own
    conversion, which inspects the type of each element.
    """
    found = list(values)
    kinds = set(map(type, found))
    if kinds == {int}:
        return f"{{{','.join(map(str, found))}}}"
    if kinds == {str}:
        # Most texts need no escaping: one check of all of them together is cheaper than a check of each.
        text = '","'.join(found)
        if "\\" not in text and text.count('"') == 2 * len(found) - 2:
            return f'{{"{text}"}}'
    return f"{{{','.join([_element(value) for value in found])}}}"


def arrays(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return one array literal (see `array`) for each column of these rows. There must be at least one row."""
    return [array(column) for column in zip(*rows, strict=True)]


def _element(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        # Hexadecimal digits need no quotes, but their mark does.
        return f'"\\\\x{value.hex()}"'
    if not isinstance(value, KNOWN):
        raise TypeError(f"no {type(value).__name__} goes into a list")
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


@contextmanager
def cursor() -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """Yield a cursor of the driver on this thread's connection and in its transaction. Raises errors as Django does."""
    connection.ensure_connection()
    driver: psycopg.Connection[tuple[Any, ...]] = connection.connection
    driver.prepare_threshold = PREPARED_AFTER
    with connection.wrap_database_errors, psycopg.Cursor(driver) as found:
        yield found


def insert(rows: Sequence[Model]) -> None:
    """Insert rows of one model with one statement, in this order, and set each row's id.

    A column that the first row leaves to the database default is omitted for all rows. `auto_now` has no effect.
    """
    if not rows:
        return
    left = tuple(name for name, value in vars(rows[0]).items() if isinstance(value, DatabaseDefault))
    columns, sql = _insert(type(rows[0]), left)
    with cursor() as found:
        written = found.execute(sql, _lists(rows, columns)).fetchall()
    for row, (row_id,) in zip(rows, written, strict=True):
        row.pk = row_id


def upsert(rows: Sequence[Model], *, unique: Sequence[str]) -> None:
    """Insert rows of one model with one statement; a row with the same `unique` columns is updated and has the same id
    after it.

    `auto_now` has no effect.
    """
    if not rows:
        return
    columns, sql = _upsert(type(rows[0]), tuple(unique))
    with cursor() as found:
        found.execute(sql, _lists(rows, columns))


def update(rows: Sequence[Model], names: Sequence[str], *, read: Mapping[str, Sequence[Any]]) -> set[Any]:
    """Update the attributes `names` of these rows with one statement, and return the ids of updated rows.

    `read` maps attributes to values, one for each row, in order. A row whose current values differ from these is not
    updated.
    """
    if not rows:
        return set()
    columns, sql = _update(type(rows[0]), tuple(names), tuple(read))
    with cursor() as found:
        return {row_id for (row_id,) in found.execute(sql, [*_lists(rows, columns), *map(array, read.values())])}


# The attributes of a row, each with whether it goes as JSON.
Columns = list[tuple[str, bool]]


def _lists(rows: Sequence[Model], columns: Columns) -> list[str]:
    lists = []
    for name, is_json in columns:
        values = [getattr(row, name) for row in rows]
        lists.append(array([None if value is None else json.dumps(value) for value in values] if is_json else values))
    return lists


@cache
def _insert(model: type[Model], left: tuple[str, ...]) -> tuple[Columns, bytes]:
    columns, sql = _given(model, left)
    return columns, f"{sql} RETURNING {model._meta.pk.column}".encode()


@cache
def _upsert(model: type[Model], unique: tuple[str, ...]) -> tuple[Columns, bytes]:
    columns, sql = _given(model, ())
    fields = [field.column for field in model._meta.concrete_fields if not field.primary_key]
    changed = ", ".join(f'"{name}" = EXCLUDED."{name}"' for name in fields if name not in unique)
    return columns, f"{sql} ON CONFLICT ({', '.join(unique)}) DO UPDATE SET {changed}".encode()


@cache
def _update(model: type[Model], names: tuple[str, ...], read: tuple[str, ...]) -> tuple[Columns, bytes]:
    fields = {field.attname: field for field in model._meta.concrete_fields}
    key = model._meta.pk
    given = [key, *(fields[name] for name in names)]
    lists = _unnest([*given, *(fields[name] for name in read)])
    columns = ", ".join([f'"{field.column}"' for field in given] + [f'"read_{name}"' for name in read])
    changed = ", ".join(f'"{field.column}" = given."{field.column}"' for field in given[1:])
    same = "".join(f' AND row."{fields[name].column}" IS NOT DISTINCT FROM given."read_{name}"' for name in read)
    sql = (
        f"UPDATE {model._meta.db_table} AS row SET {changed} FROM {lists} AS given ({columns})"
        f" WHERE row.{key.column} = given.{key.column}{same} RETURNING row.{key.column}"
    )
    return _columns(given), sql.encode()


def _given(model: type[Model], left: tuple[str, ...]) -> tuple[Columns, str]:
    """Return the columns of an INSERT, without the attributes in `left`, and the beginning of the statement."""
    fields = [field for field in model._meta.concrete_fields if not field.primary_key and field.attname not in left]
    # As `foreign` is, a column may be a word of SQL.
    names = ", ".join(f'"{field.column}"' for field in fields)
    return _columns(fields), f"INSERT INTO {model._meta.db_table} ({names}) SELECT * FROM {_unnest(fields)}"


def _columns(fields: "Iterable[Field[Any, Any]]") -> Columns:
    return [(field.attname, isinstance(field, JSONField)) for field in fields]


def _unnest(fields: "Iterable[Field[Any, Any]]") -> str:
    lists = ", ".join(f"%s::{field.db_type(connection)}[]" for field in fields)
    return f"unnest({lists})"
