"""Full jitter: after each failure a random wait up to a limit that doubles, so that a fleet spreads by itself."""

from __future__ import annotations

from random import Random

LEAST_SECONDS = 1.0
MOST_SECONDS = 60.0


class Backoff:
    """Counts failures in a row. `random` is injected."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    @property
    def failing(self) -> bool:
        """True from a failure to the next success."""
        return self._failures > 0

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0

    def failed(self, retry_after: float | None = None) -> float:
        """Seconds to wait: up to 1, 2, 4 ... 60, on top of what the peer asked for with `retry_after`."""
        limit = min(MOST_SECONDS, LEAST_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        return (retry_after or 0.0) + self._random.uniform(0.0, limit)
