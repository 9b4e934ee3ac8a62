"""A pytest plugin that has the servers running before Django reads its settings.

Real `DATABASE_URL` and `REDIS_URL` win. Every other setting of the person who runs the tests is taken away, so that a
test sees the defaults.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleet.configuration import SETTINGS
from fleet.embedded import ServerProblem, servers

PREFIX = "drydock-tests-"
KEPT = ("DATABASE_URL", "REDIS_URL")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    for setting in SETTINGS:
        if setting.name not in KEPT:
            os.environ.pop(setting.name, None)
            os.environ.pop(f"{setting.name}_FILE", None)
    os.environ["SECRET_KEY"] = "a key for tests, long enough and known to everybody"
    sweep()
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        urls = stack.enter_context(servers(folder, dict(os.environ), durable=False))
    except ServerProblem as problem:
        raise pytest.UsageError(str(problem)) from problem
    os.environ.update(urls.environment)
    return (yield)


def sweep() -> None:
    """Removes the folders of test runs that were killed; a run that lives holds its lock, a new one is young."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            found = folder.stat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < 60:
                continue
            with (folder / "in-use-by").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
