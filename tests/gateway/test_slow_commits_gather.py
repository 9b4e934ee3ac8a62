"""Slow commits: a pause follows each, and the next one is limited in size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st

from fleet.gateway import committer as writing
from fleet.gateway.committer import (
    COMMIT_SECONDS,
    GATHER_SECONDS,
    GATHER_SLOW_SECONDS,
    GATHERING,
    LEAST_REPORTS,
    SLOW_SECONDS,
    Committer,
    most_after,
    pause_after,
)
from fleet.gateway.http import Problem
from fleet.gateway.limits import GatewayLimits
from fleet.operations.intake.keep import Delivery
from tests.loops import in_a_loop


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
def test_pause_is_limited_by_the_commit_time_and_the_screen_delay(deliveries: int, waiting: int, took: float) -> None:
    assert pause_after(deliveries, waiting, took=took) <= max(GATHER_SECONDS, min(took, GATHER_SLOW_SECONDS))
    assert took >= SLOW_SECONDS or pause_after(deliveries, waiting, took=took) <= GATHER_SECONDS


@given(reports=st.integers(1, 5_000), took=st.floats(0.002, 60))
def test_the_next_commit_takes_up_what_this_one_would_have_written_in_a_second(reports: int, took: float) -> None:
    most = most_after(reports, took=took, limit=2_500)
    assert LEAST_REPORTS <= most <= 2_500
    if LEAST_REPORTS < most < 2_500:
        assert abs(most * took / reports - COMMIT_SECONDS) <= took / reports


def test_a_storm_is_written_in_commits_of_a_second_each() -> None:
    # 1,600 reports a second, plus 0.1 s for each commit.
    most, times = LEAST_REPORTS, []
    for _ in range(10):
        times.append(0.1 + most / 1_600)
        most = most_after(most, took=times[-1], limit=2_500)
    assert times[-1] < COMMIT_SECONDS * 1.01
    assert most > 1_000


def test_database_outage_does_not_enlarge_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: Any) -> None:
        raise OperationalError("no connection")

    monkeypatch.setattr(writing.record, "record", away)

    async def play() -> int:
        committer = Committer(GatewayLimits(), asyncio.get_running_loop())
        committer._most = 2_500
        committer.loop.start()
        calls = [committer.commit(Delivery(machine_id=number, spool="s", reports=[]), 1) for number in range(400)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        committer.loop.stop()
        # The answers are there a moment before it is said how large the next one is.
        await asyncio.to_thread(committer.loop.join)
        assert {type(answer) for answer in answers} == {Problem}
        return committer._most

    assert in_a_loop(play()) == LEAST_REPORTS
