"""A commit that took long is followed by a pause, so that the next one takes more together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gateway.committer import GATHER_SECONDS, GATHER_SLOW_SECONDS, GATHERING, SLOW_SECONDS, pause_after


@pytest.mark.parametrize(
    ("deliveries", "waiting", "took", "pause"),
    [
        (1, 0, 5.0, 0.0),
        (GATHERING - 1, 0, 5.0, 0.0),
        (GATHERING, 0, 0.001, GATHER_SECONDS),
        (GATHERING, 0, 0.1, 0.1),
        (GATHERING, 0, 5.0, GATHER_SLOW_SECONDS),
        (GATHERING, GATHERING, 5.0, 0.0),
    ],
)
def test_it_waits_as_long_as_it_took_and_not_where_others_wait(
    deliveries: int, waiting: int, took: float, pause: float
) -> None:
    assert pause_after(deliveries, waiting, took=took) == pause


@given(deliveries=st.integers(0, 2_000), waiting=st.integers(0, 2_000), took=st.floats(0, 60))
def test_nobody_is_kept_longer_than_a_commit_takes_or_than_the_screen_may_be_late(
    deliveries: int, waiting: int, took: float
) -> None:
    assert pause_after(deliveries, waiting, took=took) <= max(GATHER_SECONDS, min(took, GATHER_SLOW_SECONDS))
    assert took >= SLOW_SECONDS or pause_after(deliveries, waiting, took=took) <= GATHER_SECONDS
