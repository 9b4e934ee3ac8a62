"""A pytest plugin: it records how many seconds each test file takes, and compares them with the recorded ones.

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

import pytest

RENEW = "RENEW_DURATIONS"
# A file is named when it took so many times as long, and so many seconds more.
TIMES, SECONDS = 1.6, 5.0
# A run of fewer files is not a whole run: nothing is compared or recorded. `make test-long` has fewer files.
WHOLE, WHOLE_LONG = 150, 35


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
