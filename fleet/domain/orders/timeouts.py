"""How long the relay waits: one family, each so many times the setting ORDER_ANSWER_SECONDS. `docs/settings.md` lists
them.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self

MULTIPLES = {"answer": 1, "receipt": 2, "sent_overdue": 2, "answered_overdue": 3, "by_hand": 5, "doubted": 20}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`answer`: a machine that has said nothing for so long is passed over. `receipt`: so long after a machine may
    have asked Azure its receipt is waited for when the event moves. `sent_overdue`, `answered_overdue`: the step is
    marked for people. `by_hand`: people are told how to do without agents. `doubted`: so long after Azure's 200 without
    a start another machine asks as well.
    """

    answer: timedelta
    receipt: timedelta
    sent_overdue: timedelta
    answered_overdue: timedelta
    by_hand: timedelta
    doubted: timedelta

    @classmethod
    def of(cls, answer: timedelta) -> Self:
        return cls(**{name: count * answer for name, count in MULTIPLES.items()})
