"""What all rounds say together."""

import math
from collections.abc import Sequence

from tests.faults.rounds import PROMISED_SECONDS, Outcome
from tests.faults.schedule import Moment, Victim


def share(values: Sequence[float], part: float) -> float:
    """The value that this part of all values does not exceed (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


def summary(outcomes: Sequence[Outcome]) -> str:
    """Rounds survived, by victim and moment, and how long a true state took."""
    lines = [f"{sum(not each.wrong for each in outcomes)} of {len(outcomes)} rounds survived", "", HEAD]
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
