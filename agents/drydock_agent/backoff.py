"""Exponential backoff with full jitter: after each failure a random wait up to a limit that doubles. The retries of
many agents are therefore spread over time.
"""

from __future__ import annotations

from random import Random

MIN_SECONDS = 1.0
MAX_SECONDS = 60.0
# For calls to the backend: approvals reach Azure within ten seconds of the backend's recovery. An overloaded backend
# requests a longer wait with `Retry-After`.
BACKEND_SECONDS = 5.0
# Limit while no event is listed: a fleet that reconnects spreads over this time.
QUIET_SECONDS = 30.0


class Backoff:
    """Counter of consecutive failures that computes the waits between retries. `random` returns a number from 0 to 1;
    `most` is the longest wait in seconds.
    """

    def __init__(self, random: Random, *, most: float = MAX_SECONDS) -> None:
        self._random = random
        self._most = most
        self._failures = 0

    @property
    def failing(self) -> bool:
        """True if the last attempt failed."""
        return self._failures > 0

    def succeeded(self) -> None:
        """Record a success: reset the count of failures."""
        self._failures = 0

    def failed(self, retry_after: float | None = None, *, most: float | None = None) -> float:
        """Record a failure. Return the seconds to wait: a random time of at most 1, 2, 4 ... `most` seconds, plus
        `retry_after`.
        """
        limit = min(self._most if most is None else most, MIN_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        return (retry_after or 0.0) + self._random.uniform(0.0, limit)
