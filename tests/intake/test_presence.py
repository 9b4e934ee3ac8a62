"""Presence of machines: each is live, late, silent, gone or expected by its last report."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet.domain.intake import Limits, presence_of
from fleet.domain.states import Presence

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(count: float | None) -> datetime | None:
    return None if count is None else NOW - timedelta(seconds=count)


@pytest.mark.parametrize(
    ("heard", "polled", "expected"),
    [
        (1, 1, Presence.LIVE), (1, 61, Presence.LATE), (61, 1, Presence.LATE), (1, 601, Presence.SILENT),
        (601, 601, Presence.SILENT), (1, None, Presence.SILENT), (1, 100_000, Presence.GONE),
        (100_000, 1, Presence.GONE), (None, None, Presence.EXPECTED),
    ],
)  # fmt: skip
def test_both_times_count(heard: float | None, polled: float | None, expected: Presence) -> None:
    found = presence_of(ago(heard), ago(polled), revoked=False, now=NOW, limits=Limits())
    assert found is expected


def test_a_revoked_machine_is_gone_however_loud_it_is() -> None:
    found = presence_of(NOW, NOW, revoked=True, now=NOW, limits=Limits())
    assert found is Presence.GONE
