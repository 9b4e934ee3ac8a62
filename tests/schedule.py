"""A pytest plugin that says how `make test` and `make test-long` spread over the processor.

Many tests wait for real seconds, so one worker more than there are cores keeps all of them busy. Files go to workers as
a whole, and packages whose tests share servers as a whole; those that took long last time come first, so that no worker
is left alone with one at the end.
"""

import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.durations import record_path, recorded

MOST_WORKERS = 4
# Each line is one unit of work, whatever number of files: they find their servers running.
TOGETHER = (
    ("tests/browser/", "tests/api/test_docs_page_in_a_browser.py"),
    ("tests/ring/test_once", "tests/ring/test_a_drill", "tests/ring/test_the_ring"),
    ("tests/gateway/",),
    ("tests/demo/",),
    # Each file of the project is read and parsed once.
    ("tests/architecture/",),
)


def unit_of(name: str) -> str:
    """What a worker takes as a whole: the file of a node id, or the name of those that stay together."""
    return next((unit[0] for unit in TOGETHER if name.startswith(unit)), name.partition("::")[0])


@cache
def recorded_units(path: Path) -> dict[str, float]:
    """Return the seconds of each unit in whole runs."""
    found: dict[str, float] = defaultdict(float)
    for name, seconds in recorded(path).items():
        found[unit_of(name)] += seconds
    return found


class LongestFirst(LoadFileScheduling):
    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # Files with many tests first would be the quick ones. The workers have sorted theirs already.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


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
        # A file without a recorded duration may take long.
        units = recorded_units(record_path(config))
        items.sort(key=lambda item: -units.get(unit_of(item.nodeid), float("inf")))
