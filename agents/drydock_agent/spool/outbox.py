"""Reports on their way to the spool: a disk that cannot be written stops nobody who has something to say."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drydock_agent.log_limiter import LogLimiter
from drydock_agent.spool.store import Spool, SpoolError

# Reports kept in memory while the disk cannot be written; beyond that the oldest goes.
MOST_WAITING = 1000


@dataclass(slots=True, frozen=True)
class _Waiting:
    kind: str
    at: datetime
    data: dict[str, Any]
    remember: dict[str, str]


class Outbox:
    """Of one part. Sets `written` when something reached the spool."""

    def __init__(self, *, spool: Spool, limiter: LogLimiter, written: threading.Event) -> None:
        self._spool = spool
        self._limiter = limiter
        self._written = written
        self._waiting: deque[_Waiting] = deque(maxlen=MOST_WAITING)

    @property
    def waits(self) -> bool:
        """True while something is not on the disk yet."""
        return bool(self._waiting)

    def add(self, kind: str, at: datetime, data: dict[str, Any], *, remember: Mapping[str, str] | None = None) -> None:
        """Note one report, and what the spool is to remember together with it. `write` brings it to the disk."""
        self._waiting.append(_Waiting(kind, at, data, dict(remember or {})))

    def write(self, remember: Mapping[str, str] | None = None) -> bool:
        """Bring to the disk what waits, each report together with `remember`. False where something still waits."""
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
            self._limiter.recovered("spool", "The spool is written again.")
            self._written.set()
        return not self._waiting

    def keep(self, key: str, value: str) -> bool:
        """Have the spool remember a value. False where that failed."""
        try:
            self._spool.set(key, value)
        except SpoolError as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: SpoolError) -> None:
        self._limiter.warn("spool", f"The spool cannot be written: {error}.")
