"""Kill -9 in the middle: a few rounds here, as many as you like with `make faults ROUNDS=1000`."""

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.faults.rounds import Outcome, play
from tests.faults.scene import scene
from tests.faults.schedule import BLOCK, SEED, TELLING, Moment, Victim, plan
from tests.faults.summary import record, recorded, summary


def test_twenty_rounds_hold_every_victim_and_every_moment() -> None:
    for seed in (1, 7, 990):
        plans = [plan(number) for number in range(seed, seed + BLOCK)]
        assert {(each.victim, each.moment) for each in plans} >= set(TELLING)
        assert {each.victim for each in plans} == set(Victim)
        assert {each.moment for each in plans} == set(Moment)
    assert plan(17) == plan(17)


def test_recorded_rounds_are_read_back_and_an_incomplete_one_is_played_again(tmp_path: Path) -> None:
    file = tmp_path / "rounds"
    outcomes = [Outcome(plan(17), [0.5], ["CONFIRMED"], [201]), Outcome(plan(3), lost=1, doubled=2, wrong=["why"])]
    for outcome in outcomes:
        record(outcome, file)
    with file.open("a") as lines:
        lines.write('\n{"round": 4, "victim": "gate')
    assert recorded(file) == {17: outcomes[0], 3: outcomes[1]}
    record(Outcome(plan(4)), file)
    assert [*recorded(file)] == [17, 3, 4] and recorded(tmp_path / "none") == {}


@pytest.mark.real_time
@pytest.mark.fault
@pytest.mark.faults
@pytest.mark.parametrize("rounds", [int(os.environ.get("ROUNDS", "4"))])
def test_no_granted_approval_is_lost_whichever_process_is_killed(rounds: int, tmp_path: Path) -> None:
    file = Path(os.environ.get("RESULTS") or tmp_path / "rounds")
    ends = time.monotonic() + 60 * float(os.environ.get("MINUTES") or "inf")
    numbers = range(SEED, SEED + rounds)
    waiting = [number for number in numbers if number not in recorded(file)]
    with scene() if waiting else nullcontext() as it:
        for number in waiting:
            if it is None or time.monotonic() > ends:
                break
            outcome = play(it, plan(number))
            record(outcome, file)
            sys.stdout.write(f"{outcome}\n")
            sys.stdout.flush()
    outcomes = [outcome for number, outcome in sorted(recorded(file).items()) if number in numbers]
    sys.stdout.write(f"\n{summary(outcomes)}\n")
    wrong = [f"{each}\n    again: make faults ROUNDS=1 SEED={each.plan.number}" for each in outcomes if each.wrong]
    assert outcomes and not wrong, "\n".join(wrong)
