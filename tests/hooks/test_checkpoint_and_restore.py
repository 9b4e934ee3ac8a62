"""Checkpoint and restore, with real folders."""

import shutil
from pathlib import Path

import pytest

from tests.hooks.conftest import Example, ExampleFactory


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub folder").mkdir(parents=True)
    (folder / "sub folder" / "data").write_text("of the day")
    (folder / "run").write_text("#!/bin/sh")
    (folder / "run").chmod(0o750)
    return folder


@pytest.fixture
def made(example: ExampleFactory, tmp_path: Path, work: Path) -> Example:
    made = example("checkpoint-and-restore")
    made.set(WORK_DIR=work, CHECKPOINT_DIR=tmp_path / "kept")
    return made


def test_what_the_event_took_away_comes_back(made: Example, tmp_path: Path, work: Path) -> None:
    event_id, _ = made.prepare("Redeploy")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["checkpoint.tar"]
    shutil.rmtree(work)
    assert made.recover(event_id) == f"Restored {work}.\n"
    assert (work / "sub folder" / "data").read_text() == "of the day"
    assert (work / "run").stat().st_mode & 0o777 == 0o750
    assert list((tmp_path / "kept").iterdir()) == []


def test_what_is_still_there_is_left_as_it_is(made: Example, work: Path) -> None:
    event_id, _ = made.prepare("Redeploy")
    (work / "sub folder" / "data").write_text("newer")
    assert made.cancel(event_id) == f"{work} is not empty: left as it is.\n"
    assert (work / "sub folder" / "data").read_text() == "newer"


def test_a_freeze_needs_no_checkpoint(made: Example, tmp_path: Path) -> None:
    event_id, said = made.prepare("Freeze")
    assert "nothing to keep" in said
    assert not (tmp_path / "kept").exists()
    assert made.recover(event_id) == "There is no checkpoint.\n"


def test_a_checkpoint_that_fails_is_a_failure_and_spoils_no_older_one(made: Example, tmp_path: Path) -> None:
    made.prepare("Redeploy")
    kept = (tmp_path / "kept" / "checkpoint.tar").read_bytes()
    made.set(WORK_DIR=tmp_path / "nowhere")
    made.prepare("Redeploy", ends="failed")
    assert (tmp_path / "kept" / "checkpoint.tar").read_bytes() == kept
