"""Rate limit for the metadata service, which allows five requests a second for all programs of a machine."""

from __future__ import annotations

import threading
import time
from collections import deque

from drydock_agent.clock import Clock

# Polls and approvals together; two of the five are reserved for other programs.
MAX_PER_SECOND = 3


class RateLimit:
    """Lets at most `MAX_PER_SECOND` requests begin in any second; for any number of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: deque[float] = deque(maxlen=MAX_PER_SECOND)

    def wait(self) -> None:
        """Return when one more request may begin: at once, or within a second for each that is ahead."""
        with self._lock:
            now = self._clock.monotonic()
            full = len(self._begun) == MAX_PER_SECOND
            at = max(now, self._begun[0] + 1.0) if full else now
            self._begun.append(at)
        if at > now:
            time.sleep(at - now)


# The limit applies to the machine, so all clients of a process share one.
OF_THIS_PROCESS = RateLimit(Clock())
