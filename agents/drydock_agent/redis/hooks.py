"""Runs the owner's hooks in `redis.d`: for each line of a cache, and when its connection is lost and had again.

What it is about passes in seconds, so nothing is made up for after a restart: a hook that was cut off is ended, and
the next connection says `ConnectionRestored`.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from drydock_agent.clock import to_text
from drydock_agent.connections import Interrupted
from drydock_agent.context import Context
from drydock_agent.hooks.environment import environment
from drydock_agent.hooks.folder import FolderRefused, Hook, hooks_of
from drydock_agent.hooks.progress import FAILED
from drydock_agent.lazy_import import LazyImport
from drydock_agent.redis import notification as line
from drydock_agent.redis.outcomes import FOLDER, RETRY_SECONDS, Outcomes
from drydock_agent.settings.caches import Cache

if TYPE_CHECKING:
    from drydock_agent.hooks import process
else:
    process = LazyImport("drydock_agent.hooks.process")

PHASE = "redis"
CONNECTION_LOST = "ConnectionLost"
CONNECTION_RESTORED = "ConnectionRestored"
IDLE_SECONDS = 3600.0
# Hooks that hang must not fill the memory with what waits for them.
WAITING = 1000
# Of what a hook printed, in the log.
LOGGED_CHARACTERS = 500

log = logging.getLogger("drydock_agent")


@dataclass(slots=True, frozen=True)
class Occasion:
    """What hooks are run for. `raw` is empty and `reason` stated where it is about the connection."""

    at: datetime
    said: line.Notification
    raw: str = ""
    state: str = ""
    reason: str = ""


@dataclass(slots=True)
class _Run:
    occasion: Occasion
    # The hooks that wait; None before the folder was read.
    waiting: list[Hook] | None = field(default=None)


class CacheHooks:
    """One cache, one thread: the hooks for one occasion end before those for the next begin."""

    def __init__(self, context: Context, cache: Cache, *, resource_name: Callable[[], str]) -> None:
        self.name = f"redis hooks {cache.host}"
        self.wake = threading.Event()
        # How many hooks ended how, since the agent started.
        self.outcomes: Counter[str] = Counter()
        self._context = context
        self._cache = cache
        self._timeout = context.settings.hook_timeout_seconds
        self._resource_name = resource_name
        self._told = Outcomes(context, cache.host)
        self._stopping = threading.Event()
        self._occasions: deque[_Run] = deque()

    def heard(self, raw: bytes, at: datetime) -> None:
        """A line came. Returns at once; may be called from any thread, like the two below."""
        self._add(Occasion(at, line.read(raw), raw=raw.decode("utf-8", "replace")))

    def lost(self, state: str, reason: str, at: datetime) -> None:
        """The connection is gone: `state` is `lost`, `stale` or `refused`."""
        self._add(Occasion(at, line.Notification(CONNECTION_LOST), state=state, reason=reason))

    def restored(self, at: datetime) -> None:
        """The server has acknowledged a new connection, also the first one of this run."""
        self._add(Occasion(at, line.Notification(CONNECTION_RESTORED), state="subscribed"))

    def step(self) -> float:
        """One hook. 0 when there may be more, else the seconds until it looks again."""
        if self._told.left_over:
            process.end_leftovers(f"DRYDOCK_RUN={self._told.left_over}")
            self._told.left_over = ""
        if not self._occasions:
            self._told.write()
            return RETRY_SECONDS if self._told.waits else IDLE_SECONDS
        run = self._occasions[0]
        if run.waiting is None:
            run.waiting = self._hooks(run.occasion)
        if run.waiting:
            self._run(run.occasion, run.waiting.pop(0))
        else:
            self._occasions.popleft()
        return 0.0

    def interrupt(self) -> None:
        """End the hook in progress, for good."""
        self._stopping.set()

    def _add(self, occasion: Occasion) -> None:
        if len(self._occasions) < WAITING:
            self._occasions.append(_Run(occasion))
            self.wake.set()
        else:
            self._context.limiter.warn(
                self.name, f"{self._cache.host}: {WAITING} lines wait for hooks; this one runs none."
            )

    def _hooks(self, occasion: Occasion) -> list[Hook]:
        try:
            found = hooks_of(self._context.settings.hooks_dir, PHASE)
        except FolderRefused as error:
            self._context.limiter.warn(f"{self.name} folder", str(error))
            self.outcomes[FAILED] += 1
            self._told.refused(occasion.said.kind, FOLDER, str(error))
            return []
        self._told.still_refused({hook.name for hook in found if hook.refused})
        return found

    def _run(self, occasion: Occasion, hook: Hook) -> None:
        if hook.refused:
            ended = process.Ended(FAILED, None, 0.0, hook.refused)
            self._told.refused(occasion.said.kind, hook.name, hook.refused)
        else:
            ended = self._ended(occasion, hook)
            self._told.ended(
                occasion.said.kind,
                hook.name,
                ended.outcome,
                exit_status=ended.exit_status,
                seconds=ended.seconds,
                output=ended.output,
            )
        self.outcomes[ended.outcome] += 1
        good = ended.outcome != FAILED and not ended.exit_status
        said = "" if good and not ended.output else f": {' '.join(ended.output.split())[-LOGGED_CHARACTERS:]}"
        log.log(
            logging.INFO if good else logging.WARNING,
            "%s: %s %s %s after %.1f s%s",
            self._cache.host,
            occasion.said.shown,
            hook.name,
            ended.outcome,
            ended.seconds,
            said,
        )

    def _ended(self, occasion: Occasion, hook: Hook) -> process.Ended:
        if self._stopping.is_set():
            raise Interrupted
        run = uuid.uuid4().hex
        self._told.begun(run)
        try:
            return process.run(
                hook.command(),
                environment=environment(self._variables(occasion, run)),
                given=(json.dumps(self._given(occasion)) + "\n").encode(),
                timeout=self._timeout,
                stopping=self._stopping,
            )
        except Interrupted:
            # Nobody would run it again, so nobody else would tell.
            sentence = f"The agent stopped while {hook.name} ran; it is not run again."
            self._told.ended(occasion.said.kind, hook.name, FAILED, output=sentence)
            raise

    def _given(self, occasion: Occasion) -> dict[str, object]:
        said = occasion.said
        return {
            "Cache": self._cache.host,
            "NotificationType": said.kind,
            "StartTimeInUTC": said.start_time or None,
            "IsReplica": {"1": True, "0": False}.get(said.is_replica),
            "IPAddress": said.ip_address or None,
            "SSLPort": int(said.ssl_port) if said.ssl_port else None,
            "NonSSLPort": int(said.non_ssl_port) if said.non_ssl_port else None,
            "HeardAt": to_text(occasion.at),
            "Raw": occasion.raw or None,
            "Coverage": occasion.state or None,
            "Reason": occasion.reason or None,
        }

    def _variables(self, occasion: Occasion, run: str) -> dict[str, object]:
        said = occasion.said
        return {
            "PHASE": PHASE,
            "CACHE": self._cache.host,
            "CACHE_TIER": self._cache.tier,
            "NOTIFICATION_TYPE": said.kind,
            "START_TIME": said.start_time,
            "IS_REPLICA": said.is_replica,
            "IP_ADDRESS": said.ip_address,
            "SSL_PORT": said.ssl_port,
            "NON_SSL_PORT": said.non_ssl_port,
            "HEARD_AT": to_text(occasion.at),
            "AGE_SECONDS": f"{max((self._context.clock.now() - occasion.at).total_seconds(), 0.0):.1f}",
            "RAW": occasion.raw,
            "COVERAGE": occasion.state,
            "REASON": occasion.reason,
            "RESOURCE_NAME": self._resource_name(),
            "MACHINE_ID": self._context.machine_id,
            "HOOK_TIMEOUT_SECONDS": f"{self._timeout:g}",
            "RUN": run,
        }
