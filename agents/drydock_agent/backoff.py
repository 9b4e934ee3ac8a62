"""Full jitter: after each failure a random wait up to a limit that doubles, so that a fleet spreads by itself."""

from __future__ import annotations

from random import Random

LEAST_SECONDS = 1.0
MOST_SECONDS = 60.0
# To the backend: what was granted reaches Azure within ten seconds of its recovery, however long it was away. One that
# is under pressure asks for more by its `Retry-After`.
BACKEND_SECONDS = 5.0
# Where no event is listed nobody is in a hurry: a fleet that comes back spreads over this time.
QUIET_SECONDS = 30.0


class Backoff:
    """Counts failures in a row. `random` is injected; `most` is the limit of the limit, in seconds."""

    def __init__(self, random: Random, *, most: float = MOST_SECONDS) -> None:
        self._random = random
        self._most = most
        self._failures = 0

    @property
    def failing(self) -> bool:
        """True from a failure to the next success."""
        return self._failures > 0

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0

    def failed(self, retry_after: float | None = None, *, most: float | None = None) -> float:
        """Seconds to wait: up to 1, 2, 4 ... `most`, on top of what the peer asked for with `retry_after`."""
        limit = min(self._most if most is None else most, LEAST_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        return (retry_after or 0.0) + self._random.uniform(0.0, limit)
