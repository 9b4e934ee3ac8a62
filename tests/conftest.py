"""Fixtures that every test may use, and what the marked groups need.

The servers themselves are started by `tests.servers`, before this file is read. `db` and `transactional_db` come from
pytest-django.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.db import connection
from django.test.utils import setup_databases, teardown_databases
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls, valkey

# In CI these must run; a skip there means that nobody looked.
NEVER_SKIPPED_IN_CI = ("browser", "flow", "fault", "faults")
# Here real processes keep real time on machines that others use, too: what fails is played once more, and the summary
# names it. What fails twice has failed.
REAL_TIME = tuple(
    f"tests/{folder}/"
    for folder in (
        "agent", "browser", "conformance", "containers", "demo", "embedded", "faults", "flow", "gateway", "hooks",
        "redis_maintenance", "simulator",
    )
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    browser = [item for item in items if item.get_closest_marker("browser")]
    if browser:
        # Playwright leaves an event loop in this thread, also for the tests that follow; Django refuses models there.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    for item in items:
        if item.nodeid.startswith(REAL_TIME):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if not shutil.which("chromium"):
        for item in browser:
            item.add_marker(pytest.mark.skip(reason="no chromium here; `make browser` installs it on Debian"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        for mark in NEVER_SKIPPED_IN_CI:
            if item.get_closest_marker(mark):
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
                report.outcome = "failed"
                report.longrepr = f"A test marked `{mark}` must not be skipped in CI. {reason}"
                break
    return report


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Debian's own chromium: quiet, and without its sandbox only where root leaves no choice."""
    quiet = ["--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return {**browser_type_launch_args, "executable_path": shutil.which("chromium"), "args": quiet}


# A copy of the test database from before the first test.
TEMPLATE = f"drydock_template_{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """The test database, and its copy. The plugin's own makes none where only real processes want one."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases={"default"})
        name = connection.settings_dict["NAME"]
        # A template is a database to which nobody is connected.
        connection.close()
    execute("CREATE DATABASE {} TEMPLATE {}", TEMPLATE, name)
    # Tests that commit leave no row behind; elsewhere the timeline cannot be emptied.
    execute("ALTER DATABASE {} SET drydock.may_truncate = 'tests'", name)
    yield
    execute("DROP DATABASE {} WITH (FORCE)", TEMPLATE)
    # A server that a test has just killed may have left a session behind that ends a moment later; while anybody holds
    # on to the test database it cannot be dropped.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
    with django_db_blocker.unblock():
        teardown_databases(made, verbosity=0)


@pytest.fixture
def redis_url() -> str:
    """The Redis of the test run, emptied."""
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the emptied Redis."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


def database_named(name: str) -> str:
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()


def execute(statement: str, *names: str) -> None:
    """Runs one statement outside any transaction; each `{}` becomes a quoted name."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@pytest.fixture(scope="session")
def migrated_template(django_db_setup: None) -> str:
    """The name of a database with all migrations and no rows, to copy from; nobody may stay connected to it."""
    return TEMPLATE


@pytest.fixture
def new_database() -> Iterator[Callable[..., str]]:
    """A function that makes a database and returns its URL: empty, or a copy of the one that it is given by name."""
    with ExitStack() as stack:

        def make(template: str = "template1") -> str:
            name = f"drydock_test_{secrets.token_hex(6)}"
            execute("CREATE DATABASE {} TEMPLATE {}", name, template)
            stack.callback(execute, "DROP DATABASE {} WITH (FORCE)", name)
            return database_named(name)

        yield make


@pytest.fixture
def own_urls(tmp_path: Path, migrated_template: str, new_database: Callable[..., str]) -> Iterator[Urls]:
    """A migrated database and a Valkey process that belong to this test alone; for tests with real processes.

    `own_urls.environment` is what its processes need.
    """
    with valkey(tmp_path) as redis_url:
        yield Urls(database=new_database(migrated_template), redis=redis_url)


@pytest.fixture
def product_passwords() -> None:
    """For a test with a log-in at the real server: that is another process, which knows the product's hash only."""


@pytest.fixture(autouse=True)
def quick_passwords(request: pytest.FixtureRequest, settings: Any) -> None:
    """Nobody's password is guessed here; the slow hash of the product costs a second a person."""
    if "product_passwords" in request.fixturenames:
        return
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
