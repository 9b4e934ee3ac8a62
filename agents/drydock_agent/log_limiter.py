"""Limiter of repeated warnings: each kind is logged at most once an hour."""

from __future__ import annotations

import logging
import threading

from drydock_agent.clock import Clock

HOUR = 3600.0

log = logging.getLogger("drydock_agent")


class LogLimiter:
    """Suppresses repeated warnings. A warning is identified by its key, a fixed string in the code, so the memory is
    bounded.
    """

    def __init__(self, clock: Clock, *, period: float = HOUR) -> None:
        self._clock = clock
        self._period = period
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, key: str, message: str, *, exc_info: bool = False) -> None:
        """Log `message` unless this key was logged within the last hour. The next logged warning states how many were
        suppressed.
        """
        with self._lock:
            now = self._clock.monotonic()
            last = self._last.get(key)
            if last is not None and now - last < self._period:
                self._left_out[key] = self._left_out.get(key, 0) + 1
                return
            self._last[key] = now
            left_out = self._left_out.pop(key, 0)
        if left_out:
            message = f"{message} ({left_out} more of these since the last such line)"
        log.warning("%s", message, exc_info=exc_info)

    def recovered(self, key: str, message: str) -> None:
        """Log `message` once after a warning with this key. The next warning is then logged immediately.

        This only happens if the recovery has lasted as long as the failure. A condition that alternates quickly is
        still logged at most once an hour.
        """
        with self._lock:
            if key not in self._last:
                return
            if key in self._left_out and self._clock.monotonic() - self._last[key] < self._period:
                return
            self._left_out.pop(key, None)
            del self._last[key]
        log.info("%s", message)
