"""A pytest plugin that records how long test files take, and spreads `make test` and `make test-long` over the
processor.

Many tests wait for real seconds, so one worker more than there are cores keeps all of them busy. Files go to workers as
a whole, and packages whose tests share servers as a whole; those that took long last time come first, so that no worker
is left alone with one at the end.

`RENEW_DURATIONS=1 make test` writes `durations.json` next to this file, and `make test-long` writes
`durations-long.json`. Every whole run names the files that became much slower since. Both files state seconds relative
to a loop on this machine, since machines differ and are busy.
"""

import json
import os
import time
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

RENEW = "RENEW_DURATIONS"
# A file is named when it took so many times as long, and so many seconds more.
TIMES, SECONDS = 1.6, 5.0
# A run of fewer files is not a whole run: nothing is compared or recorded. `make test-long` has fewer files.
WHOLE, WHOLE_LONG = 150, 35
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


def is_long(config: pytest.Config) -> bool:
    """Return whether this is a run of `make test-long`."""
    return str(config.getoption("markexpr")).startswith("long")


def record_path(config: pytest.Config) -> Path:
    """Return the file that holds the recorded seconds of this command."""
    return Path(__file__).with_name("durations-long.json" if is_long(config) else "durations.json")


@cache
def recorded(path: Path) -> dict[str, float]:
    """Return seconds by file, at the speed at which the loop takes a second; empty before the first record."""
    known: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return known


def loop_seconds() -> float:
    """How long 20 million additions take here: half a second to two."""
    began, total = time.perf_counter(), 0
    for number in range(20_000_000):
        total += number
    return time.perf_counter() - began


class Durations:
    """Of the process that the workers report to."""

    def __init__(self, config: pytest.Config) -> None:
        self.path = record_path(config)
        self.whole = WHOLE_LONG if is_long(config) else WHOLE
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.seconds) < self.whole:
            return
        loop = loop_seconds()
        found = {name: seconds / loop for name, seconds in self.seconds.items()}
        if os.environ.get(RENEW):
            text = json.dumps({name: round(found[name], 1) for name in sorted(found)}, indent=1)
            self.path.write_text(text + "\n", encoding="utf-8")
        known = recorded(self.path)
        slower = sorted(
            name
            for name, seconds in found.items()
            if seconds > max(TIMES * known.get(name, seconds), known.get(name, seconds) + SECONDS)
        )
        if slower:
            terminalreporter.section("slower than recorded")
        for name in slower:
            terminalreporter.line(f"{name}: {found[name]:.0f} s, recorded {known[name]:.0f} s")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config), "durations of files")


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
