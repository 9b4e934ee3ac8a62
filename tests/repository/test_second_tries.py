"""What is marked `real_time` is tried twice, nothing else is, and the summary names it."""

from pathlib import Path

from tests.repository.nested import run

SAMPLE = """
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


def test_only_marked_tests_are_tried_twice_and_the_summary_names_them(tmp_path: Path) -> None:
    said = run(tmp_path, SAMPLE)
    assert "2 failed, 1 passed, 2 rerun" in said
    summary = said.split("= tried twice =")[1]
    assert "test_late_once (call), then passed; at first: AssertionError: still not ready" in summary
    assert "test_late_always (call), failed again; at first: AssertionError: never ready" in summary
    assert "test_plain (" not in summary
