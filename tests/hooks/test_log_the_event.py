"""Logging the event."""

import json
from pathlib import Path

from tests.hooks.conftest import ExampleFactory


def test_each_phase_of_each_event_is_one_line_of_json(example: ExampleFactory, tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    made = example("log-the-event")
    made.set(EVENT_LOG=log)
    first, said = made.prepare(description='a "quoted" text')
    assert said == f"Logged in {log}.\n"
    made.recover(first)
    second, _ = made.prepare("Freeze", starts_as="Started")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [(line["phase"], line["late"], line["event"]["EventId"]) for line in lines] == [
        ("prepare", 0, first),
        ("recover", 0, first),
        ("prepare", 1, second),
    ]
    assert lines[0]["event"]["Description"] == 'a "quoted" text'
