"""The database driver's own cursor, for what every commit of reports repeats.

Django writes parameters into the text of a statement, which is then quoted here and read and planned there each time.
Here each statement is prepared once for a connection, and its parameters travel beside it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from django.db import connection

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
