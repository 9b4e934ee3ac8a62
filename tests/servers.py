"""A pytest plugin that has the servers running before Django reads its settings.

A Postgres and a Valkey for each worker. A transaction that one worker leaves open would hold up what is sealed and
streamed in every other database of its server, and Valkey's messages do not keep to one database. Real `DATABASE_URL`
and `REDIS_URL` win. Every other setting of the person who runs the tests is taken away, so that a test sees the
defaults.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack

import psycopg
import pytest

from fleet.configuration import SETTINGS
from fleet.embedded import ServerProblem, servers, temporary_folder

KEPT = ("DATABASE_URL", "REDIS_URL")
# Which of them name servers that this run started itself; its worker processes read it.
OURS = "DRYDOCK_TEST_SERVERS"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    for setting in SETTINGS:
        if setting.name not in KEPT:
            os.environ.pop(setting.name, None)
            os.environ.pop(f"{setting.name}_FILE", None)
    os.environ["SECRET_KEY"] = "a key for tests, long enough and known to everybody"
    # What follows an approval is what most tests look at; those of undoing say so.
    os.environ["UNDO_SECONDS"] = "0"
    # One test's numbers are not to be told in the next.
    os.environ["HEAD_SECONDS"] = "0"
    # Hundreds of processes are started here; each would compile the whole of Django and Celery anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        for name in os.environ.pop(OURS, "").split():
            del os.environ[name]
    else:
        os.environ[OURS] = " ".join(
            name for name in KEPT if not (os.environ.get(name) or os.environ.get(f"{name}_FILE"))
        )
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    folder = stack.enter_context(temporary_folder())
    try:
        urls = stack.enter_context(servers(folder, dict(os.environ), durable=False))
    except ServerProblem as problem:
        raise pytest.UsageError(str(problem)) from problem
    if urls.database != os.environ.get("DATABASE_URL"):
        leave_statistics_alone(urls.database)
    os.environ.update(urls.environment)
    return (yield)


def leave_statistics_alone(url: str) -> None:
    """Autovacuum still vacuums; its ANALYZE is a transaction that holds the horizon back whenever it likes."""
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("ALTER SYSTEM SET autovacuum_analyze_threshold = 2147483647")
        server.execute("SELECT pg_reload_conf()")
