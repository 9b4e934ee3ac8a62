"""What was heard of one cache, and whether somebody listened: written down in the order in which it came."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from . import wire
from .clock import Clock, from_text, to_text
from .connections import Interrupted
from .quiet import Quiet
from .redis_maintenance_caches import Cache
from .spool import Spool, SpoolError

SUBSCRIBED = "subscribed"
LOST = "lost"
STALE = "stale"
REFUSED = "refused"
UNSUPPORTED = "unsupported"

# Reports kept in memory while the disk cannot be written.
UNWRITTEN = 1000
LINE_CHARACTERS = 16000
_BASE64_BYTES = LINE_CHARACTERS // 4 * 3


class Record:
    """Used by the thread that listens, and at the stop by another one."""

    def __init__(self, *, cache: Cache, spool: Spool, clock: Clock, quiet: Quiet, reported: Callable[[], None]) -> None:
        self.state = ""
        self._cache = cache
        self._spool = spool
        self._clock = clock
        self._quiet = quiet
        self._reported = reported
        self._lock = threading.Lock()
        self._ended = False
        self._unwritten: deque[tuple[str, datetime, dict[str, Any], dict[str, str]]] = deque(maxlen=UNWRITTEN)
        self._key = f"redis {cache.host}"
        self._close_gap(spool.get(self._key))

    @property
    def waits(self) -> bool:
        """True while the disk could not be written."""
        return bool(self._unwritten)

    def line(self, raw: bytes, at: datetime) -> None:
        """One line, as it came."""
        with self._lock:
            self._unwritten.append((wire.REDIS, at, _data(self._cache.host, raw), {}))
        self.write()

    def coverage(self, state: str, reason: str, at: datetime) -> None:
        """The state has changed. Raises `Interrupted` after `end`."""
        with self._lock:
            if self._ended:
                raise Interrupted
            self.state = state
            self._note(state, reason, at)
        self.write()

    def say_again(self) -> None:
        """The state as it is, for a backend that may not know it."""
        with self._lock:
            if self.state:
                self._note(self.state, "", self._clock.now())
        self.write()

    def alive(self) -> None:
        """A sign of life: should this agent be killed, it had listened until here."""
        try:
            self._spool.set(self._key, _remembered(self.state, self._clock.now()))
        except SpoolError as error:
            self._quiet.warn("spool", f"The spool cannot be written: {error}.")

    def end(self) -> None:
        """Nobody listens from now on, because the agent stops."""
        with self._lock:
            self._ended = True
            if self.state == SUBSCRIBED:
                self._note(LOST, "the agent stopped", self._clock.now())
            self._write()

    def write(self) -> None:
        """Bring to the disk what waits."""
        with self._lock:
            wrote = self._write()
        if wrote:
            self._reported()

    def _close_gap(self, remembered: str | None) -> None:
        """An agent that was killed could not say that it no longer listens."""
        content = json.loads(remembered or "{}")
        alive = from_text(content.get("alive"))
        if content.get("state") == SUBSCRIBED and alive is not None:
            self._note(LOST, "the agent ended without a word", alive)

    def _note(self, state: str, reason: str, at: datetime) -> None:
        data = wire.CoverageData(
            cache=self._cache.host, state=state, reason=reason, tier=self._cache.tier, divisor=self._cache.divisor
        )
        self._unwritten.append((wire.COVERAGE, at, asdict(data), {self._key: _remembered(state, at)}))

    def _write(self) -> bool:
        wrote = False
        try:
            while self._unwritten:
                kind, at, data, remember = self._unwritten[0]
                self._spool.add(kind, at, data, remember=remember)
                self._unwritten.popleft()
                wrote = True
        except SpoolError as error:
            self._quiet.warn("spool", f"The spool cannot be written: {error}.")
        return wrote


def _data(cache: str, raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8")
        data = wire.RedisData(cache=cache, raw=text[:LINE_CHARACTERS], cut=len(text) > LINE_CHARACTERS)
    except UnicodeDecodeError:
        kept = base64.b64encode(raw[:_BASE64_BYTES]).decode("ascii")
        data = wire.RedisData(cache=cache, raw=kept, encoding="base64", cut=len(raw) > _BASE64_BYTES)
    return asdict(data)


def _remembered(state: str, at: datetime) -> str:
    return json.dumps({"state": state, "alive": to_text(at)})
