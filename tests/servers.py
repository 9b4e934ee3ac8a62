"""A pytest plugin that has the servers running before Django reads its settings.

Each worker has a Postgres and a Valkey of its own. An open transaction of one worker would delay sealing and streaming
in every other database of its server. Valkey's messages are not confined to one database either. Real `DATABASE_URL`
and `REDIS_URL` take precedence. A server that dies is started again before the next test, and the test that lost it
names it when it fails. Every other setting of the developer is removed, so that a test sees the defaults.

Our own Postgres begins with a copy of a migrated cluster, which `.pytest_cache` keeps until a migration or a model
changes: to migrate takes longer than all else at the start.
"""

import fcntl
import gc
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from django.db import connections

from fleet.configuration import table
from fleet.embedded import ServerProblem, Urls, postgres_server, servers, temporary_folder

KEPT = ("DATABASE_URL", "REDIS_URL")
# Which of them name servers that this run started itself; its worker processes read it.
OURS = "DRYDOCK_TEST_SERVERS"
# The name of the migrated database in a server of our own; empty if an external server is used.
TEMPLATE = "DRYDOCK_TEST_TEMPLATE"
ROOT = Path(__file__).resolve().parent.parent
MIGRATED = ROOT / ".pytest_cache" / "migrated"
# What decides how a migrated database looks.
DECIDING = ("fleet/**/migrations/*.py", "fleet/**/models/**/*.py", "fleet/*/models.py", "fleet/embedded/*.py")
DECIDING_FILES = ("fleet/management/commands/migrate.py", "fleet/audit/partition_drop.py", "requirements/dev.txt")
# Those of this process, once they run.
RUNNING: list[Urls] = []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    for name in set(table) - set(KEPT):
        os.environ.pop(name, None)
        os.environ.pop(f"{name}_FILE", None)
    os.environ["SECRET_KEY"] = "a key for tests, long enough and known to everybody"
    # Machines of most tests enrol with a join token, and some processes start on a database of their own.
    os.environ["ENROLMENT_POLICY"] = "token"
    # Most tests check what follows an approval; the tests of undoing set their own period.
    os.environ["APPROVAL_UNDO_SECONDS"] = "0"
    # Cached numbers of one test must not appear in the next.
    os.environ["STATUS_BAR_CACHE_SECONDS"] = "0"
    # Hundreds of processes start here; each would otherwise compile the whole of Django and Celery again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Until everything is imported and collected: `tests.conftest` enables it again.
        gc.disable()
        ours = os.environ.pop(OURS, "").split()
        for name in ours:
            del os.environ[name]
    else:
        ours = [name for name in KEPT if not (os.environ.get(name) or os.environ.get(f"{name}_FILE"))]
        os.environ[OURS] = " ".join(ours)
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    folder = stack.enter_context(temporary_folder())
    try:
        os.environ[TEMPLATE] = copy_migrated(folder) if "DATABASE_URL" in ours else ""
        urls = stack.enter_context(servers(folder, dict(os.environ), durable=False))
    except ServerProblem as problem:
        raise pytest.UsageError(str(problem)) from problem
    os.environ.update(urls.environment)
    RUNNING.append(urls)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    bring_back()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (said := bring_back()):
        report.sections.append(("servers of the tests", "\n".join(said)))
    return report


def bring_back() -> list[str]:
    """Starts again what has died of this run's servers; a sentence about each."""
    try:
        said = [line for urls in RUNNING for line in urls.watch()]
    except ServerProblem as problem:
        pytest.exit(str(problem), returncode=pytest.ExitCode.INTERNAL_ERROR)
    if said:
        # Django looks whether a connection still works at the start of a request only.
        connections.close_all()
    return said


def copy_migrated(folder: Path) -> str:
    """Copy a cluster with a migrated database into the folder and return the database's name; make it if need be."""
    files = sorted(
        {path for pattern in DECIDING for path in ROOT.glob(pattern)} | {ROOT / name for name in DECIDING_FILES}
    )
    key = hashlib.sha256(b"".join(path.read_bytes() for path in [*files, Path(__file__)])).hexdigest()[:16]
    MIGRATED.mkdir(parents=True, exist_ok=True)
    name, kept, copied = "drydock_migrated", MIGRATED / key, MIGRATED / "draft"
    with (MIGRATED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            for left in MIGRATED.glob("*/"):
                shutil.rmtree(left)
            with temporary_folder() as draft:
                with postgres_server(draft, durable=False) as made:
                    make_migrated(made.url, name)
                subprocess.run(["cp", "-a", draft / "postgres", copied], check=True)
            copied.rename(kept)
        subprocess.run(["cp", "-a", kept, folder / "postgres"], check=True)
    return name


def make_migrated(url: str, name: str) -> None:
    """Make a migrated database; in its server autovacuum still vacuums, but its ANALYZE, a transaction that holds the
    horizon back whenever it likes, does not run.
    """
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("ALTER SYSTEM SET autovacuum_analyze_threshold = 2147483647")
        server.execute("SELECT pg_reload_conf()")
        server.execute(f"CREATE DATABASE {name}")
    made = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url.replace("/drydock?", f"/{name}?"), "REDIS_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise ServerProblem(f"Cannot migrate: {made.stderr}")
