"""Lines of the backend: bounded, one event each, JSON to the last where that is asked for."""

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from fleet import logs
from fleet.logs import Lines, WithoutPath


def made(style: str, words: object, *arguments: object, **fields: Any) -> str:
    record = logging.LogRecord("somebody", logging.INFO, __file__, 1, words, arguments, None)  # type: ignore[arg-type]
    record.__dict__.update(fields)
    WithoutPath().filter(record)
    return logs.line(style).format(record)


def test_json_begins_with_what_every_line_has() -> None:
    with structlog.contextvars.bound_contextvars(request_id="r"):
        said = json.loads(made("json", "done: %s", "x"))
    assert list(said) == ["time", "level", "logger", "event", "request_id"]
    assert (said["level"], said["logger"], said["event"]) == ("info", "somebody", "done: x")


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_hostile_text_is_one_bounded_line(style: str) -> None:
    with structlog.contextvars.bound_contextvars(name="\x1b[31m\r\n\u2028" + "y" * 100_000, many=["z" * 100_000]):
        said = made(style, "\x1b[31m\r\n{}\u2028%s", "x" * 100_000)
    assert len(said.splitlines()) == 1
    assert "\x1b" not in said
    assert len(said) < 10_000


def test_of_what_was_raised_the_end_is_kept() -> None:
    try:
        raise ValueError("x" * 50_000 + "the end")
    except ValueError:
        said = made("json", "failed", exc_info=sys.exc_info())
    found = json.loads(said)
    assert found["exception"].endswith("the end")
    assert len(said) < 10_000


def test_the_path_of_a_request_is_not_written_down() -> None:
    request = SimpleNamespace(path="/calendar/SECRET.ics")
    said = made("json", "%s: %s", "Internal Server Error", "/calendar/SECRET.ics", request=request)
    assert json.loads(said)["event"] == "Internal Server Error"


def test_a_fault_that_repeats_is_logged_with_growing_pauses() -> None:
    now = [0.0]
    pauses = logs.GrowingPauses(lambda: now[0])
    logged = []

    def occur(level: int = logging.ERROR, words: str = "cannot send %s\n%s") -> bool:
        record = logging.LogRecord("celery.beat", level, __file__, 1, words, ("tell", ["a stack"]), None)
        passed = pauses.filter(record)
        if passed and words.startswith("cannot"):
            logged.append((now[0], record.getMessage()))
        return passed

    for second in range(0, 3600, 2):
        now[0] = float(second)
        occur()
    assert [at for at, _ in logged] == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert logged[0][1] == "cannot send tell\n['a stack']"
    assert logged[1][1] == "cannot send tell (4 more of these since the last such line)"
    # Another fault, and what is no fault, is logged at once; so is this one after it was over.
    assert occur(words="another %s %s") and occur(logging.INFO) and occur(logging.INFO)
    now[0] += 121
    assert occur() and logged[-1][1] == "cannot send tell\n['a stack']"


def test_line_that_cannot_be_written_is_replaced_by_a_line_that_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    handler = Lines(sys.stderr)
    handler.setFormatter(logs.line("json"))
    handler.emit(logging.LogRecord("somebody", logging.INFO, __file__, 1, "%d", ("x",), None))
    (said,) = capsys.readouterr().err.splitlines()
    assert "log.unwritable" in json.loads(said)["event"]


@pytest.fixture
def said_by_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything that `say_all_in` changes is as before afterwards."""
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr("threading.excepthook", lambda found: None)
    yield
    logging.captureWarnings(capture=False)


@pytest.mark.usefixtures("said_by_python")
def test_what_python_prints_is_json_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.say_all_in("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("two\nlines", stacklevel=1)
    try:
        raise ValueError("it is not caught")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["logger"] for line in found][-1] == "python"
    assert "it is not caught" in found[-1]["event"]
    assert "two\nlines" in found[0]["event"]
