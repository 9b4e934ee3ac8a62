"""Record of one cache: the received lines, and when this machine listened, in the order in which they occurred."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import asdict
from datetime import datetime
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import from_text, to_text
from drydock_agent.connections import Interrupted
from drydock_agent.context import Context
from drydock_agent.settings.caches import Cache

SUBSCRIBED = "subscribed"
LOST = "lost"
STALE = "stale"
REFUSED = "refused"
UNSUPPORTED = "unsupported"

LINE_CHARACTERS = 16000
_BASE64_BYTES = LINE_CHARACTERS // 4 * 3


class CoverageRecord:
    """Writes the lines and the coverage changes of one cache to the spool. The listener's thread uses it, and another
    thread when the agent stops.
    """

    def __init__(self, context: Context, cache: Cache) -> None:
        self.state = self._reason = ""
        self._cache = cache
        self._clock = context.clock
        self._outbox = context.outbox()
        self._lock = threading.Lock()
        self._ended = False
        self._key = f"redis {cache.host}"
        self._close_gap(context.spool.get(self._key))

    @property
    def waits(self) -> bool:
        """True if reports are in memory because the disk could not be written."""
        return self._outbox.waits

    def line(self, raw: bytes, at: datetime) -> None:
        """Report one line as received."""
        with self._lock:
            self._outbox.add(wire.REDIS, at, _data(self._cache.host, raw))
        self.write()

    def coverage(self, state: str, reason: str, at: datetime) -> None:
        """Report a new coverage state (`wire.CoverageData`). Raises `Interrupted` after `end`."""
        with self._lock:
            if self._ended:
                raise Interrupted
            self.state, self._reason = state, reason
            self._note(state, reason, at)
        self.write()

    def resend_state(self) -> None:
        """Report the current coverage state again, because the backend may have lost it."""
        with self._lock:
            if self.state:
                self._note(self.state, self._reason, self._clock.now())
        self.write()

    def alive(self) -> None:
        """Store the current time as proof that the listener is running. After a crash, the next run then knows until
        when it listened.
        """
        self._outbox.keep(self._key, _remembered(self.state, self._clock.now()))

    def end(self) -> None:
        """Report that listening ends because the agent stops."""
        with self._lock:
            self._ended = True
            if self.state == SUBSCRIBED:
                self._note(LOST, "the agent stopped", self._clock.now())
            self._outbox.write()

    def write(self) -> None:
        """Write the reports in memory to the spool."""
        with self._lock:
            self._outbox.write()

    def _close_gap(self, remembered: str | None) -> None:
        """Report the end of coverage for an earlier run that was killed. `remembered` is the stored text of `alive`."""
        content = json.loads(remembered or "{}")
        alive = from_text(content.get("alive"))
        if content.get("state") == SUBSCRIBED and alive is not None:
            self._note(LOST, "the agent ended unexpectedly", alive)

    def _note(self, state: str, reason: str, at: datetime) -> None:
        data = wire.CoverageData(
            cache=self._cache.host, state=state, reason=reason, tier=self._cache.tier, divisor=self._cache.divisor
        )
        self._outbox.add(wire.COVERAGE, at, asdict(data), remember={self._key: _remembered(state, at)})


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
