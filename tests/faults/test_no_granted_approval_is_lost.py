"""Kill -9 in the middle: a few rounds here, as many as you like with `make faults ROUNDS=1000`."""

import os
import sys

import pytest

from tests.faults.rounds import Outcome, play
from tests.faults.scene import scene
from tests.faults.schedule import BLOCK, SEED, TELLING, Moment, Victim, plan
from tests.faults.summary import summary


def test_twenty_rounds_hold_every_victim_and_every_moment() -> None:
    for seed in (1, 7, 990):
        plans = [plan(number) for number in range(seed, seed + BLOCK)]
        assert {(each.victim, each.moment) for each in plans} >= set(TELLING)
        assert {each.victim for each in plans} == set(Victim)
        assert {each.moment for each in plans} == set(Moment)
    assert plan(17) == plan(17)


@pytest.mark.real_time
@pytest.mark.fault
@pytest.mark.faults
@pytest.mark.parametrize("rounds", [int(os.environ.get("ROUNDS", "4"))])
def test_no_granted_approval_is_lost_whichever_process_is_killed(rounds: int) -> None:
    outcomes: list[Outcome] = []
    with scene() as it:
        for number in range(SEED, SEED + rounds):
            outcomes.append(play(it, plan(number)))
            sys.stdout.write(f"{outcomes[-1]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{summary(outcomes)}\n")
    wrong = [f"{each}\n    again: make faults ROUNDS=1 SEED={each.plan.number}" for each in outcomes if each.wrong]
    assert not wrong, "\n".join(wrong)
