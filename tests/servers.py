"""A pytest plugin that has the servers running before Django reads its settings.

Real `DATABASE_URL` and `REDIS_URL` win. Every other setting of the person who runs the tests is taken away, so that a
test sees the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from fleet.configuration import SETTINGS
from fleet.embedded import ServerProblem, servers, temporary_folder

KEPT = ("DATABASE_URL", "REDIS_URL")
# Which of them name servers that this run started; its worker processes read it.
OURS = "DRYDOCK_TEST_SERVERS"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    for setting in SETTINGS:
        if setting.name not in KEPT:
            os.environ.pop(setting.name, None)
            os.environ.pop(f"{setting.name}_FILE", None)
    os.environ["SECRET_KEY"] = "a key for tests, long enough and known to everybody"
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Beside other workers each one has servers of its own, unless real ones were given to all of them.
        for name in os.environ.pop(OURS, "").split():
            del os.environ[name]
    before = set(os.environ)
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    folder = stack.enter_context(temporary_folder())
    try:
        urls = stack.enter_context(servers(folder, dict(os.environ), durable=False))
    except ServerProblem as problem:
        raise pytest.UsageError(str(problem)) from problem
    os.environ.update(urls.environment)
    os.environ[OURS] = " ".join(name for name in KEPT if name not in before)
    return (yield)
