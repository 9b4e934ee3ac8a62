"""The demo in a process of its own, on free ports, with a folder that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import PYTHON, Process, free_port, start, wait_for

SECONDS_TO_START = 90


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {
        "PORT": str(free_port()),
        "SIMULATOR_PORT": str(free_port()),
        "DEMO_DIR": str(tmp_path_factory.mktemp("demo")),
        "STORY": "off",
        # As for a visitor: the demo brings its own servers and its own key.
        "DATABASE_URL": "",
        "REDIS_URL": "",
        "SECRET_KEY": "",
    }


@pytest.fixture
def demo(environment: dict[str, str], tmp_path: Path) -> Iterator[Process]:
    process = start([PYTHON, "manage.py", "demo"], environment=environment, log=tmp_path / "demo.log")
    try:
        wait_for(lambda: says_how_to_log_in(process) or None, seconds=SECONDS_TO_START, what="a demo that answers")
        yield process
    finally:
        process.kill()


def says_how_to_log_in(process: Process) -> bool:
    assert process.child.poll() is None, process.said()
    return "Ctrl-C ends it" in process.said()
