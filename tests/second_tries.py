"""A pytest plugin: a failed test that is marked `real_time` runs a second time, and the summary states so.

Such a test waits for real processes on a machine that has other users, too. A test that fails twice has failed.
"""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("real_time"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried = terminalreporter.stats.get("rerun", [])
    if not tried:
        return
    failed = {report.nodeid for name in ("failed", "error") for report in terminalreporter.stats.get(name, [])}
    terminalreporter.section("tried twice")
    for report in tried:
        ended = "failed again" if report.nodeid in failed else "then passed"
        terminalreporter.line(f"{report.nodeid} ({report.when}), {ended}; at first: {why(report)}")


def why(report: pytest.TestReport) -> str:
    """The first line of what went wrong."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
    return lines[0] if lines else "it did not say"
