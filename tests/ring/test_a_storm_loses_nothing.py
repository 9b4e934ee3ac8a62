"""A storm of announcements and approvals over the whole ring: some hundredths of what `make bench ARGS=storm` plays."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.stage import Stage
from bench.storm_outcome import Storm
from bench.storm_play import play
from fleet.embedded import Urls

pytestmark = [pytest.mark.long, pytest.mark.real_time]

STORM = Storm(
    events=16, machines=3, within=3, approvals=9, refused=3, clicks=1, probes=0, loads=1, chosen=5, browser=False,
    worker_dies=True,
)  # fmt: skip


def test_every_approval_of_a_storm_reaches_azure_once_though_the_worker_dies(own_urls: Urls, tmp_path: Path) -> None:
    with ExitStack() as stack:
        outcome = play(Stage.upon(tmp_path, {**os.environ, **own_urls.environment}, stack), STORM)
    # Nothing that a machine has told is lost.
    assert (outcome.announced, outcome.known, outcome.waiting) == (16, 16, 0)
    # An approval that a guard blocks delays no other one of the same call.
    assert dict(outcome.results) == {201: 9, 409: 3}
    # Each approval reached Azure once and came to its end; unapproved events were not started.
    assert outcome.starts == dict.fromkeys(outcome.asked, 1)
    assert {state: count for state, count in outcome.states.items() if count} == {"CONFIRMED": 10}
