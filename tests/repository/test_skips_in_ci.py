"""A skipped browser, flow or fault test is a failure in CI, and only there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fleet.embedded.leash import leashed
from tests.processes import PYTHON, ROOT
from tests.servers import KEPT

SAMPLE = """
import pytest

MARKED = [pytest.param(mark, marks=getattr(pytest.mark, mark)) for mark in ("browser", "flow", "fault")]

@pytest.mark.parametrize("mark", MARKED)
def test_marked(mark):
    pytest.skip("nothing here to look with")

def test_ordinary():
    pytest.skip("an ordinary reason")
"""


def run(folder: Path, environment: dict[str, str]) -> str:
    (folder / "test_sample.py").write_text(SAMPLE)
    command = [PYTHON, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), str(folder)]
    ended = subprocess.run(
        leashed([*command, "-p", "no:cacheprovider"]),
        cwd=ROOT,
        # With the servers of this run: it would start some of its own for the four tests.
        env={**{name: os.environ[name] for name in KEPT}, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout


def test_in_ci_a_skip_of_a_marked_group_fails_with_its_reason(tmp_path: Path) -> None:
    said = run(tmp_path, {"CI": "true"})
    assert "3 failed, 1 skipped" in said
    assert "A test marked `flow` must not be skipped in CI. Skipped: nothing here to look with" in said


def test_elsewhere_it_is_a_skip_with_its_reason(tmp_path: Path) -> None:
    said = run(tmp_path, {})
    assert "4 skipped" in said
    assert "nothing here to look with" in said
