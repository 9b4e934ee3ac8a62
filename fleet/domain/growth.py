"""How large the database will be: kinds of rows that grow, and those among them that leave after a time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

GIGABYTE = 1024**3
# Further nobody can see.
MOST_DAYS = 3_650
# What is looked ahead to where nobody said how much room there is, in gigabytes.
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


@dataclass(frozen=True, slots=True)
class Growth:
    """A kind of rows: bytes now, bytes a day, and after how many days they leave; None for never."""

    size: int
    daily: float
    days: int | None = None

    def after(self, days: int) -> float:
        """Bytes then: what leaves holds no more than its days bring, or what is there now."""
        grown = self.size + self.daily * days
        return grown if self.days is None else min(grown, max(self.size, self.daily * self.days))


def next_step(size: int) -> int:
    """The size that is looked ahead to: the next of a few round ones, in bytes."""
    return next((step * GIGABYTE for step in STEPS if step * GIGABYTE > size), 2 * size)


def days_until(most: int, kinds: Sequence[Growth], rest: int) -> int | None:
    """In how many days these kinds and the rest come to so many bytes; None for not within ten years."""

    def total(days: int) -> float:
        return rest + sum(kind.after(days) for kind in kinds)

    if total(MOST_DAYS) < most:
        return None
    low, high = 0, MOST_DAYS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if total(middle) >= most else (middle + 1, high)
    return low
