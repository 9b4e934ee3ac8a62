"""Outbox for reports. They stay in memory while the spool cannot be written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drydock_agent.log_limiter import LogLimiter
from drydock_agent.spool.store import Spool, SpoolError

# Maximum number of reports in memory while the disk cannot be written. Above it, the oldest is dropped.
MAX_PENDING = 1000


@dataclass(slots=True, frozen=True)
class _Waiting:
    kind: str
    at: datetime
    data: dict[str, Any]
    remember: dict[str, str]


class Outbox:
    """Outbox of one part of the agent. It sets the event `written` when reports are in the spool."""

    def __init__(self, *, spool: Spool, limiter: LogLimiter, written: threading.Event) -> None:
        self._spool = spool
        self._limiter = limiter
        self._written = written
        self._waiting: deque[_Waiting] = deque(maxlen=MAX_PENDING)
        # True while the spool cannot be written.
        self.failing = False

    @property
    def waits(self) -> bool:
        """True if reports are in memory and not yet on disk."""
        return bool(self._waiting)

    def add(self, kind: str, at: datetime, data: dict[str, Any], *, remember: Mapping[str, str] | None = None) -> None:
        """Add one report, and values to store in the same transaction. Call `write` to write both to disk."""
        self._waiting.append(_Waiting(kind, at, data, dict(remember or {})))

    def write(self, remember: Mapping[str, str] | None = None) -> bool:
        """Write the reports in memory to the spool, each together with the values `remember`. Return whether all are on
        disk.
        """
        wrote = False
        try:
            while self._waiting:
                one = self._waiting[0]
                self._spool.add(one.kind, one.at, one.data, remember={**one.remember, **(remember or {})})
                self._waiting.popleft()
                wrote = True
        except SpoolError as error:
            self._warn(error)
        if wrote:
            self._recover()
            self._written.set()
        return not self._waiting

    def keep(self, key: str, value: str) -> bool:
        """Store a value in the spool under `key`. Return whether this succeeded."""
        try:
            self._spool.set(key, value)
        except SpoolError as error:
            self._warn(error)
            return False
        self._recover()
        return True

    def _recover(self) -> None:
        if not self._waiting:
            self.failing = False
        self._limiter.recovered("spool", "The spool is written again.")

    def _warn(self, error: SpoolError) -> None:
        self.failing = True
        self._limiter.warn("spool", f"The spool cannot be written: {error}.")
