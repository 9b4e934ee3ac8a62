"""A pytest plugin that says how `make test` and `make test-long` spread over the processor.

Many tests wait for real seconds, so one worker more than there are cores keeps all of them busy. Files go to workers as
a whole, and packages whose tests share servers as a whole; the long ones first, so that no worker is left alone with
one at the end.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

MOST_WORKERS = 4
# Each line is one unit of work, whatever number of files: they find their servers running.
TOGETHER = (
    ("tests/browser/", "tests/api/test_docs_page_in_a_browser.py"),
    ("tests/ring/test_once", "tests/ring/test_a_drill", "tests/ring/test_the_ring"),
    ("tests/gateway/",),
    ("tests/demo/",),
)
# What takes long, in the order in which it is begun: mostly waiting beside mostly computing.
FIRST = (
    *TOGETHER[0],
    "tests/faults/",
    "tests/approvals/test_races.py",
    "tests/ring/",
    "tests/events/",
    "tests/gateway/",
    "tests/demo/",
    "tests/packaging/",
    "tests/conformance/",
    "tests/timeline/",
    "tests/agent/redis/",
    "tests/embedded/",
    "tests/repository/",
    "tests/policy/",
    "tests/agent/",
    "tests/simulator/test_redis_plays.py",
    "tests/hooks/",
    "tests/approvals/",
    "tests/orders/",
    "tests/dashboard/",
    "tests/api/",
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
        return next((unit[0] for unit in TOGETHER if nodeid.startswith(unit)), super()._split_scope(nodeid))


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
