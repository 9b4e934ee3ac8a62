"""Declarations of event types: the notice that Microsoft documents."""

from __future__ import annotations

import pytest

from fleet.domain.event_types import is_notice_short


@pytest.mark.parametrize(
    ("event_type", "seconds", "is_short"),
    [
        ("Freeze", 900, False),
        # One poll a second, whole seconds at Azure, an answer that took its time.
        ("Freeze", 896, False),
        ("Freeze", 319, True),
        ("Redeploy", 600, False),
        ("Redeploy", 590, True),
        ("Terminate", 300, False),
        ("Preempt", 26, False),
        ("Preempt", 12, True),
        ("Freeze", None, False),
        ("Relocate", 1, False),
    ],
)
def test_notice_is_short_only_beyond_the_tolerance_of_polls(
    event_type: str, seconds: int | None, is_short: bool
) -> None:
    assert is_notice_short(event_type, seconds) is is_short
