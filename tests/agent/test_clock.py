"""Times as text, however many digits a second has; the same on every Python that the agent runs on."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from drydock_agent.clock import from_text, to_text

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-03-01T12:00:00Z", 0),
        ("2026-03-01T12:00:00", 0),
        ("2026-03-01 12:00:00z", 0),
        ("2026-03-01T12:00:00.5Z", 500_000),
        ("2026-03-01T12:00:00.123456789Z", 123_456),
        ("2026-03-01T14:00:00.12+02:00", 120_000),
    ],
)
def test_a_time_is_read_however_it_is_spelled(text: str, micros: int) -> None:
    assert from_text(text) == NOON + timedelta(microseconds=micros)


@pytest.mark.parametrize("text", ["", "noon", "Z", "2026-13-01T12:00:00Z", None, 5])
def test_what_is_no_time_is_none(text: object) -> None:
    assert from_text(text) is None


def test_what_is_written_is_read_again() -> None:
    at = NOON + timedelta(microseconds=1)
    assert from_text(to_text(at)) == at
