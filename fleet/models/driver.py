"""The database driver's own cursor, for what every commit of reports repeats.

Django writes parameters into the text of a statement, which is then quoted here and read and planned there each time.
Here each statement is prepared once for a connection, and its parameters travel beside it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection

# A statement is prepared when it is met so many times.
PREPARED_AFTER = 2


@contextmanager
def cursor() -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """On this thread's connection and in its transaction; what goes wrong is raised as Django raises it."""
    connection.ensure_connection()
    driver: psycopg.Connection[tuple[Any, ...]] = connection.connection
    driver.prepare_threshold = PREPARED_AFTER
    with connection.wrap_database_errors, psycopg.Cursor(driver) as found:
        yield found
