"""A pytest plugin that says how `make test` spreads over the processor.

Many tests wait for real seconds, so one worker more than there are cores keeps all of them busy. Files go to workers as
a whole, the long ones first, so that no worker is left alone with one at the end; and everything that drives a browser
goes to one worker, where it finds browser and server running.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

MOST_WORKERS = 4
# One unit of work, whatever number of files.
IN_A_BROWSER = ("tests/browser/", "tests/demo/", "tests/api/test_docs_page_in_a_browser.py")
# What takes long, in the order in which it is begun: mostly waiting beside mostly computing.
FIRST = (
    *IN_A_BROWSER,
    "tests/faults/",
    "tests/deciding/test_races.py",
    "tests/flow/",
    "tests/redis_maintenance/test_faults.py",
    "tests/merging/test_the_merging_agrees_with_a_plain_model.py",
    "tests/gateway/",
    "tests/merging/",
    "tests/containers/",
    "tests/conformance/",
    "tests/embedded/",
    "tests/redis_maintenance/",
    "tests/simulator/test_simulator_redis_plays.py",
    "tests/repository/",
    "tests/hooks/",
    "tests/agent/",
    "tests/deciding/",
    "tests/relaying/",
    "tests/simulator/",
)


def place(name: str) -> int:
    """Where a test stands in `FIRST`, by its node id; behind all of them if it is not named."""
    return next((number for number, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))


class LongestFirst(LoadFileScheduling):
    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # Files with many tests first would be the quick ones. The workers have sorted theirs already.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return "in a browser" if nodeid.startswith(IN_A_BROWSER) else super()._split_scope(nodeid)


# First: xdist answers with the number of cores, and the first answer counts.
@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    return min((os.cpu_count() or 1) + 1, MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))
