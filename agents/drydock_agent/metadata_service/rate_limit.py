"""Rate limit of requests to the metadata service, which accepts five requests a second from all programs of a
machine.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from drydock_agent.clock import Clock

# Polls and approvals together; two of the five are reserved for other programs.
MAX_PER_SECOND = 3


class RateLimit:
    """Limits the start of requests to `MAX_PER_SECOND` in any second, for all threads together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: deque[float] = deque(maxlen=MAX_PER_SECOND)

    def wait(self) -> None:
        """Wait until one more request may start."""
        with self._lock:
            now = self._clock.monotonic()
            full = len(self._begun) == MAX_PER_SECOND
            at = max(now, self._begun[0] + 1.0) if full else now
            self._begun.append(at)
        if at > now:
            time.sleep(at - now)


# The limit applies to the machine, so all clients of a process share one.
OF_THIS_PROCESS = RateLimit(Clock())
