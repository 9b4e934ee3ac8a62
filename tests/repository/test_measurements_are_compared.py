"""What `make bench` says of a figure: whether its aim is held, and whether it is better than the one committed."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import last
from bench.table import Line, at_least, at_most, table

RATE = Line("documents", "1,523/s", "64 connections", key="documents", ratio=0.013, aim=at_least(0.045))
PAGE = Line("the queue", "120 ms", key="queue", ratio=1.2, aim=at_most(1.3))


def test_ratio_is_shown_with_its_target_and_the_previous_one() -> None:
    rate, page, plain = table(
        [RATE, PAGE, Line("fdatasync", "7,900/s")], {"documents": 0.0065, "queue": 0.6}
    ).splitlines()
    assert "1,523/s  0.013 (≥ 0.045, MISSED)  last 0.0065: 2.0 times better  64 connections" in rate
    assert "1.2 (≤ 1.3)" in page and "last 0.6: 2.0 times WORSE" in page
    assert plain.split() == ["fdatasync", "7,900/s"]
    assert "new" in table([PAGE], {}) and "the same" in table([PAGE], {"queue": 1.25})


def test_a_line_that_is_compared_states_all_of_it() -> None:
    with pytest.raises(ValueError, match="a key, a ratio and an aim"):
        Line("the queue", "120 ms", key="queue", ratio=1.2)


def test_saving_keeps_what_was_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "last.json"
    assert last.ratios(file) == {}
    assert all(ratio >= 0 for ratio in last.ratios().values()), "the committed figures can be read"
    last.save([RATE, PAGE], day="2026-11-23", file=file)
    last.save([Line("the queue", "90 ms", key="queue", ratio=0.912345, aim=at_most(1.3))], day="2026-11-24", file=file)
    assert last.ratios(file) == {"documents": 0.013, "queue": 0.9123}
    assert json.loads(file.read_text())["queue"]["figure"] == "90 ms"
    assert last.not_measured({"queue"}, file=file) == {"2026-11-23": ["documents"]}
    assert last.not_measured({"queue", "documents"}, file=file) == {}


def test_a_measurement_that_fails_is_named_and_the_others_are_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "stage", nullcontext)
    monkeypatch.setattr("bench.raw.measure", lambda stage: 1 / 0)
    monkeypatch.setattr("bench.keys.measure", lambda stage: [PAGE])
    assert bench.main(["raw", "keys"]) == 1
    said = capsys.readouterr().out
    assert "the queue" in said and "Failed, see above: raw." in said


def test_the_baseline_of_documents_starts() -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "bench.drf_settings", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", "import bench.drf"], env=environment, check=True, timeout=60)
