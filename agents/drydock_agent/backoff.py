"""Full jitter: after each failure a random wait up to a limit that doubles, so that the retries of a fleet spread."""

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
    """Counts consecutive failures. `random` is injected; `most` is the longest wait in seconds."""

    def __init__(self, random: Random, *, most: float = MAX_SECONDS) -> None:
        self._random = random
        self._most = most
        self._failures = 0

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def succeeded(self) -> None:
        """Reset the count."""
        self._failures = 0

    def failed(self, retry_after: float | None = None, *, most: float | None = None) -> float:
        """Return the seconds to wait: up to 1, 2, 4 ... `most`, in addition to `retry_after`."""
        limit = min(self._most if most is None else most, MIN_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        return (retry_after or 0.0) + self._random.uniform(0.0, limit)
