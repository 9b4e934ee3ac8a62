"""Kill -9 in the middle: a few rounds here, as many as you like with `make faults ROUNDS=1000`."""

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.faults.rounds import PROMISED_SECONDS, Outcome, play
from tests.faults.scene import scene
from tests.faults.schedule import BLOCK, SEED, TELLING, Moment, Victim, plan

HEAD = f"{'':55} {'survived':14} {'p50':>6} {'p99':>6} {'max':>6} {'>10 s':>5}"


# Outcomes are recorded in a file, so that a long run can be played in parts.


def record(outcome: Outcome, file: Path) -> None:
    """Append the outcome to the file as one line, after what a killed run may have left incomplete."""
    fields = asdict(outcome)
    del fields["plan"]
    told = {"round": outcome.plan.number, "victim": outcome.plan.victim, "moment": outcome.plan.moment, **fields}
    with file.open("a") as lines:
        lines.write(f"\n{json.dumps(told)}")


def recorded(file: Path) -> dict[int, Outcome]:
    """Return the outcomes in the file by round, without an incomplete line."""
    outcomes = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        with suppress(ValueError):
            fields = json.loads(line)
            number = fields.pop("round")
            del fields["victim"], fields["moment"]
            outcomes[number] = Outcome(plan(number), **fields)
    return outcomes


def share(values: Sequence[float], part: float) -> float:
    """The value that this part of all values does not exceed (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


def summary(outcomes: Sequence[Outcome]) -> str:
    """Rounds survived, by victim and moment, and how long a true state took."""
    lost, doubled = sum(each.lost for each in outcomes), sum(each.doubled for each in outcomes)
    lines = [
        f"{sum(not each.wrong for each in outcomes)} of {len(outcomes)} rounds survived;"
        f" approvals lost: {lost}, doubled: {doubled}",
        "",
        HEAD,
    ]
    for name, chosen in (
        *((str(victim), [one for one in outcomes if one.plan.victim is victim]) for victim in Victim),
        *((str(moment), [one for one in outcomes if one.plan.moment is moment]) for moment in Moment),
        ("NotBefore passed", [one for one in outcomes if one.plan.short]),
        ("the agent stayed away", [one for one in outcomes if not one.plan.returns]),
        ("all", list(outcomes)),
    ):
        seconds = [value for one in chosen for value in one.seconds]
        survived = sum(not one.wrong for one in chosen)
        lines.append(
            f"{name:55} {survived:5} of {len(chosen):<5} {share(seconds, 0.5):6.2f} {share(seconds, 0.99):6.2f}"
            f" {max(seconds, default=0.0):6.2f} {sum(value > PROMISED_SECONDS for value in seconds):5}"
        )
    return "\n".join(lines)


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
