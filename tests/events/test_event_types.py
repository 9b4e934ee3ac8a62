"""Declarations of event types: the notice that Microsoft documents."""

import pytest

from fleet.domain.event_types import expected_notice, is_notice_short


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
    assert is_notice_short(expected_notice(event_type, None), seconds) is is_short


@pytest.mark.parametrize(
    ("event_type", "configured", "expected"),
    [("Terminate", 900, 900), ("Terminate", None, 300), ("Redeploy", 900, 600), ("Relocate", 900, None)],
)
def test_a_deletion_is_expected_with_the_notice_of_its_scale_set(
    event_type: str, configured: int | None, expected: int | None
) -> None:
    assert expected_notice(event_type, configured) == expected
