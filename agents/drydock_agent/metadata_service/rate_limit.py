"""Keeps to the limit of the metadata service: five requests a second for all programs of a machine together."""

from __future__ import annotations

import threading
import time
from collections import deque

from drydock_agent.clock import Clock

# Polls and approvals together; two of the five are left to the other programs of the machine.
MOST_A_SECOND = 3


class RateLimit:
    """Lets at most `MOST_A_SECOND` requests begin in any second; for any number of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: deque[float] = deque(maxlen=MOST_A_SECOND)

    def wait(self) -> None:
        """Return when one more request may begin: at once, or within a second for each that is ahead."""
        with self._lock:
            now = self._clock.monotonic()
            full = len(self._begun) == MOST_A_SECOND
            at = max(now, self._begun[0] + 1.0) if full else now
            self._begun.append(at)
        if at > now:
            time.sleep(at - now)


# The limit is the machine's, so what asks in one process shares one.
OF_THIS_PROCESS = RateLimit(Clock())
