"""Second tries and skips: what is marked `real_time` is tried twice, and in CI a skipped group is a failure."""

import os
import subprocess
from pathlib import Path

from fleet.embedded.parent_death import bound
from tests.processes import PYTHON, ROOT
from tests.servers import KEPT

TRIES = """
import pytest


@pytest.fixture(scope="module")
def tries():
    return []


@pytest.mark.real_time
def test_late_once(tries):
    tries.append(1)
    assert len(tries) > 1, "still not ready"


@pytest.mark.real_time
def test_late_always():
    assert False, "never ready"


def test_plain():
    assert False, "once is enough"
"""
SKIPS = """
import pytest

MARKED = [pytest.param(mark, marks=getattr(pytest.mark, mark)) for mark in ("browser", "flow", "fault")]


@pytest.mark.parametrize("mark", MARKED)
def test_marked(mark):
    pytest.skip("nothing here to look with")


def test_ordinary():
    pytest.skip("an ordinary reason")
"""


def run(folder: Path, sample: str, **environment: str) -> str:
    """What pytest prints over one file of tests, with this project's settings."""
    (folder / "test_sample.py").write_text(sample)
    command = [PYTHON, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), str(folder)]
    # With the servers of this run: it would start some of its own for a handful of tests.
    env = {**{name: os.environ[name] for name in KEPT}, **environment}
    command = bound([*command, "-p", "no:cacheprovider"])
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False).stdout


def test_only_marked_tests_are_tried_twice_and_the_summary_names_them(tmp_path: Path) -> None:
    output = run(tmp_path, TRIES)
    assert "2 failed, 1 passed, 2 rerun" in output
    summary = output.split("= tried twice =")[1]
    assert "test_late_once (call), then passed; at first: AssertionError: still not ready" in summary
    assert "test_late_always (call), failed again; at first: AssertionError: never ready" in summary
    assert "test_plain (" not in summary


def test_a_skip_of_a_marked_group_fails_in_ci_and_nowhere_else(tmp_path: Path) -> None:
    output = run(tmp_path, SKIPS, CI="true")
    assert "3 failed, 1 skipped" in output
    assert "A test marked `flow` must not be skipped in CI. Skipped: nothing here to look with" in output
    output = run(tmp_path, SKIPS)
    assert "4 skipped" in output and "nothing here to look with" in output
