"""The pauses between attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.notifications.routing import LONGEST_ASKED_SECONDS, LONGEST_SECONDS, pause_seconds


def test_pauses_grow_and_stay_bounded() -> None:
    pauses = [pause_seconds(failures, chance=1) for failures in range(1, 12)]
    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses[-1] == LONGEST_SECONDS == pause_seconds(10_000, chance=1)


@given(st.integers(1, 10**6), st.floats(0, 1), st.none() | st.floats(0, 1e9))
def test_a_receiver_may_ask_for_more_but_not_for_ever(failures: int, chance: float, asked: float | None) -> None:
    pause = pause_seconds(failures, chance=chance, asked=asked)
    assert 1 <= pause <= LONGEST_ASKED_SECONDS
    assert pause >= min(asked or 0, LONGEST_ASKED_SECONDS)
