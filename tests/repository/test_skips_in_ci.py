"""A skipped browser, flow or fault test is a failure in CI, and only there."""

from pathlib import Path

from tests.repository.nested import run

SAMPLE = """
import pytest

MARKED = [pytest.param(mark, marks=getattr(pytest.mark, mark)) for mark in ("browser", "flow", "fault")]

@pytest.mark.parametrize("mark", MARKED)
def test_marked(mark):
    pytest.skip("nothing here to look with")

def test_ordinary():
    pytest.skip("an ordinary reason")
"""


def test_in_ci_a_skip_of_a_marked_group_fails_with_its_reason(tmp_path: Path) -> None:
    said = run(tmp_path, SAMPLE, CI="true")
    assert "3 failed, 1 skipped" in said
    assert "A test marked `flow` must not be skipped in CI. Skipped: nothing here to look with" in said


def test_elsewhere_it_is_a_skip_with_its_reason(tmp_path: Path) -> None:
    said = run(tmp_path, SAMPLE)
    assert "4 skipped" in said
    assert "nothing here to look with" in said
