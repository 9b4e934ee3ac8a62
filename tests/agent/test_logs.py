"""What the agent writes: its log lines, and times as text, the same on every Python that it runs on."""

import json
import logging
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import read_orders
from drydock_agent.clock import from_text
from drydock_agent.logs import JsonFormatter, StderrHandler, TextFormatter


def line(formatter: logging.Formatter, words: str, *arguments: object, **fields: Any) -> str:
    record = logging.LogRecord("drydock_agent", logging.WARNING, __file__, 1, words, arguments, None)
    record.__dict__.update(fields)
    return formatter.format(record)


def test_json_has_the_fields_of_the_backend_in_their_order_and_text_names_the_decision() -> None:
    entry = json.loads(line(JsonFormatter(), "Order %s.", "o", request_id="r", trace_id="", order_id="o"))
    assert list(entry) == ["time", "level", "logger", "event", "request_id", "order_id"]
    assert (entry["level"], entry["event"], entry["request_id"]) == ("warning", "Order o.", "r")
    assert entry["time"].endswith("Z")
    assert line(TextFormatter(), "Done.", request_id="r-1").endswith(" WARNING Done. request_id=r-1")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_a_hostile_sentence_is_one_bounded_line(formatter: logging.Formatter) -> None:
    entry = line(formatter, "%s", "\x1b[31m\r\n{}\u2028" + "x" * 100_000, request_id="y" * 100_000)
    assert len(entry.splitlines()) == 1
    assert "\x1b" not in entry
    assert len(entry) < 6000


def test_line_that_cannot_be_written_is_replaced_by_a_line_that_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    handler = StderrHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.emit(logging.LogRecord("drydock_agent", logging.INFO, __file__, 1, "%d", ("x",), None))
    (entry,) = capsys.readouterr().err.splitlines()
    assert "could not be written" in json.loads(entry)["event"]


def test_whatever_is_wrong_with_its_settings_is_json_where_that_is_asked_for() -> None:
    environment = {"DRYDOCK_LOG_FORMAT": "json", "DRYDOCK_POLL_SECONDS": "soon"}
    run = [sys.executable, "-m", "drydock_agent", "run"]
    ended = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (entry,) = ended.stderr.splitlines()
    assert "DRYDOCK_POLL_SECONDS" in json.loads(entry)["event"]


def test_an_id_that_comes_with_an_order_is_judged_before_it_is_logged_and_is_not_signed() -> None:
    plain = {"id": "o", "machine_id": "m", "event_id": "e", "issued_at": "2026-01-01T00:00:00Z"}
    odd = (None, 7, "", "a b", "a\nb", "x" * 129, {"a": 1})
    orders, _ = read_orders([plain | {"request_id": one, "trace_id": one} for one in (*odd, "r")])
    assert [(order.request_id, order.trace_id) for order in orders] == [("", "")] * len(odd) + [("r", "r")]
    assert len({wire.order_text(order) for order in orders}) == 1


NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)


TIMES = {
    0: ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00", "2026-03-01 12:00:00z"),
    500_000: ("2026-03-01T12:00:00.5Z",),
    123_456: ("2026-03-01T12:00:00.123456789Z",),
    120_000: ("2026-03-01T14:00:00.12+02:00",),
}


def test_a_time_is_read_however_it_is_spelled() -> None:
    for micros, texts in TIMES.items():
        assert [from_text(text) for text in texts] == [NOON + timedelta(microseconds=micros)] * len(texts)
    assert [from_text(text) for text in ("", "noon", "Z", "2026-13-01T12:00:00Z", None, 5)] == [None] * 6
