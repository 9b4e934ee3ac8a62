"""Outcomes of rounds: recorded in a file, so that a long run can be played in parts, and summarised."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tests.faults.rounds import PROMISED_SECONDS, Outcome
from tests.faults.schedule import Moment, Victim, plan


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


HEAD = f"{'':55} {'survived':14} {'p50':>6} {'p99':>6} {'max':>6} {'>10 s':>5}"
