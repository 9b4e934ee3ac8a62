"""How much is kept of what cannot be understood: of each machine so many bytes an hour, and of the rest only its size.

An agent keeps to half of it by itself; this holds whoever does not.
"""

from collections.abc import Iterable
from datetime import timedelta
from itertools import accumulate

BYTES = 8 * 1024 * 1024
PERIOD = timedelta(hours=1)
# A small one costs its rows.
LEAST = 4096


def cost(size: int) -> int:
    """What one body of so many bytes counts."""
    return max(size, LEAST)


def kept(before: int, sizes: Iterable[int]) -> list[bool]:
    """Which of these bodies are kept, in their order, after so many bytes in the same hour."""
    return [before + total <= BYTES for total in accumulate(cost(size) for size in sizes)]
