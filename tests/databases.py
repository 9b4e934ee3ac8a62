"""A pytest plugin: copies of a migrated template for workers and for tests.

`tests.servers` makes the template. On an external server the first worker that needs a database makes it. A copy takes
a fraction of a second. `db` and `transactional_db` come from pytest-django, and open what `own_database` made to one
test.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls, valkey_server
from tests.servers import TEMPLATE

# What the databases of one run have in common in their names; its worker processes read it.
RUN = "DRYDOCK_TEST_RUN"
# Of the advisory lock that lets one worker migrate while the others wait.
MIGRATING = 990_002


# What stays when a test that commits has ended: Django makes these rows by the models.
KEPT_TABLES = ("django_migrations", "django_content_type", "auth_permission")


def pytest_configure(config: pytest.Config) -> None:
    TransactionTestCase._fixture_teardown = empty  # type: ignore[method-assign]
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = secrets.token_hex(4)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", template_name())


def template_name() -> str:
    return f"drydock_template_{os.environ[RUN]}"


def database_named(name: str) -> str:
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()


def execute(statement: str, *names: str) -> None:
    """Runs one statement outside any transaction; each `{}` becomes a quoted name."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def database(template: str = "template1") -> Iterator[str]:
    """Yield the name of a new database for the length of a block: empty, or a copy of an unconnected template.

    Remaining connections are closed at the end: a server that was just killed may have left one behind.
    """
    name = f"drydock_test_{secrets.token_hex(6)}"
    execute("CREATE DATABASE {} TEMPLATE {}", name, template)
    try:
        yield name
    finally:
        execute("DROP DATABASE {} WITH (FORCE)", name)


@contextmanager
def django_on(name: str, **elsewhere: str) -> Iterator[None]:
    """Django's connections of this process go to this database for the length of a block; `elsewhere` are `HOST` and
    `USER` of another server.
    """
    changed = {"NAME": name, **elsewhere}
    before = {key: connection.settings_dict[key] for key in changed}
    connection.close()
    connection.settings_dict.update(changed)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


@pytest.fixture(scope="session")
def migrated_template(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> str:
    """Return the name of a database with all migrations and no rows, to copy from. No connection to it may remain."""
    if made := os.environ[TEMPLATE]:
        return made
    name, draft = template_name(), f"{template_name()}_draft"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute("SELECT pg_advisory_lock(%s)", [MIGRATING])
        if server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", draft)
            execute("CREATE DATABASE {}", draft)
            with django_db_blocker.unblock(), django_on(draft):
                call_command("migrate", verbosity=0, interactive=False)
            execute("ALTER DATABASE {} RENAME TO {}", draft, name)
    return name


@pytest.fixture(scope="session")
def own_database(migrated_template: str) -> Iterator[str]:
    """The name of this worker's own database, on which Django is from now on."""
    with database(migrated_template) as name:
        # Tests that commit leave no row behind; elsewhere the timeline cannot be emptied.
        execute("ALTER DATABASE {} SET drydock.may_truncate = 'tests'", name)
        with django_on(name):
            yield name


def empty(*_: object) -> None:
    """Truncate the tables in which a test has left rows. Django truncates all, and then makes rows of its own again.

    Deleting takes a sixth of the time, but then the planner takes the tables for empty until the next ANALYZE.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = 'public'::regnamespace AND relname <> ALL (%s)",
            [list(KEPT_TABLES)],
        )
        names = [sql.Identifier(name) for (name,) in cursor.fetchall()]
        has_rows = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})")
        parts = [has_rows.format(sql.Literal(number), name) for number, name in enumerate(names)]
        cursor.execute(sql.SQL(" UNION ALL ").join(parts))
        if filled := [names[number] for (number,) in cursor.fetchall()]:
            cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(filled)))


@pytest.fixture
def new_database() -> Iterator[Callable[..., str]]:
    """A function that makes a database and returns its URL: empty, or a copy of the one that it is given by name."""
    with ExitStack() as stack:
        yield lambda *template: database_named(stack.enter_context(database(*template)))


@contextmanager
def own_servers(template: str, folder: Path) -> Iterator[Urls]:
    """A new migrated database, and a Valkey process with its data in this folder."""
    with database(template) as name, valkey_server(folder) as redis:
        yield Urls(database=database_named(name), redis=redis.url)


@pytest.fixture
def own_urls(tmp_path: Path, migrated_template: str) -> Iterator[Urls]:
    """A migrated database and a Valkey process that belong to this test alone; for tests with real processes.

    `own_urls.environment` is what its processes need.
    """
    with own_servers(migrated_template, tmp_path) as urls:
        yield urls
