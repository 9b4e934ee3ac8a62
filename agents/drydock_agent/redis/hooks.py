"""Hooks in the folder `redis.d`. They run for each notification of a cache, and when the connection is lost or
restored.

A failover takes only seconds, so no hook is repeated after a restart: an interrupted hook is ended, and the next
connection runs the hooks with the trigger `ConnectionRestored`.
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
from drydock_agent.hooks.folder import FolderRefused, Hook, list_hooks
from drydock_agent.hooks.progress import FAILED
from drydock_agent.lazy_import import LazyImport
from drydock_agent.redis import notification as line
from drydock_agent.redis.hook_reports import FOLDER, RETRY_SECONDS, HookReports
from drydock_agent.settings.caches import Cache

if TYPE_CHECKING:
    from drydock_agent.hooks import process
else:
    process = LazyImport("drydock_agent.hooks.process")

PHASE = "redis"
CONNECTION_LOST = "ConnectionLost"
CONNECTION_RESTORED = "ConnectionRestored"
IDLE_SECONDS = 3600.0
# Limit of queued triggers, so that hanging hooks do not fill the memory.
WAITING = 1000
# Output of a hook in the log.
LOGGED_CHARACTERS = 500

log = logging.getLogger("drydock_agent")


@dataclass(slots=True, frozen=True)
class HookTrigger:
    """Reason for running the hooks: a notification line, or a change of the connection. For the latter, `raw` is empty
    and `reason` is set.
    """

    at: datetime
    notification: line.Notification
    raw: str = ""
    state: str = ""
    reason: str = ""


@dataclass(slots=True)
class _Run:
    trigger: HookTrigger
    # Remaining hooks; None before the folder was read.
    waiting: list[Hook] | None = field(default=None)


class CacheHooks:
    """Runs the hooks for one cache in one thread. All hooks for one trigger end before those for the next begin."""

    def __init__(self, context: Context, cache: Cache, *, resource_name: Callable[[], str]) -> None:
        self.name = f"redis hooks {cache.host}"
        self.wake = threading.Event()
        # Hooks by outcome since the agent started.
        self.outcomes: Counter[str] = Counter()
        self._context = context
        self._cache = cache
        self._timeout = context.settings.hook_timeout_seconds
        self._resource_name = resource_name
        self._reports = HookReports(context, cache.host)
        self._stopping = threading.Event()
        self._triggers: deque[_Run] = deque()

    def heard(self, raw: bytes, at: datetime) -> None:
        """Queue the hooks for a received line. Returns at once. `heard`, `lost` and `restored` may be called from any
        thread.
        """
        self._add(HookTrigger(at, line.read(raw), raw=raw.decode("utf-8", "replace")))

    def lost(self, state: str, reason: str, at: datetime) -> None:
        """Queue the hooks for a lost connection. `state` is `lost`, `stale` or `refused`."""
        self._add(HookTrigger(at, line.Notification(CONNECTION_LOST), state=state, reason=reason))

    def restored(self, at: datetime) -> None:
        """Queue the hooks for a new connection that the server has acknowledged. The first connection of a run counts,
        too.
        """
        self._add(HookTrigger(at, line.Notification(CONNECTION_RESTORED), state="subscribed"))

    def step(self) -> float:
        """Run one hook. Return 0 if there may be more, else the seconds until the next check."""
        if self._reports.leftover_run:
            run_id = self._reports.leftover_run
            process.end_leftovers(run_id, self._context.hook_record(run_id))
            self._reports.leftover_run = ""
        if not self._triggers:
            self._reports.write()
            return RETRY_SECONDS if self._reports.waits else IDLE_SECONDS
        run = self._triggers[0]
        if run.waiting is None:
            run.waiting = self._hooks(run.trigger)
        if run.waiting:
            self._run(run.trigger, run.waiting.pop(0))
        else:
            self._triggers.popleft()
        return 0.0

    def interrupt(self) -> None:
        """Stop the hook in progress; no further hook runs."""
        self._stopping.set()

    def _add(self, trigger: HookTrigger) -> None:
        if len(self._triggers) < WAITING:
            self._triggers.append(_Run(trigger))
            self.wake.set()
        else:
            self._context.limiter.warn(
                self.name, f"{self._cache.host}: {WAITING} lines wait for hooks; this one runs none."
            )

    def _hooks(self, trigger: HookTrigger) -> list[Hook]:
        try:
            found = list_hooks(self._context.settings.hooks_dir, PHASE)
        except FolderRefused as error:
            self._context.limiter.warn(f"{self.name} folder", str(error))
            self.outcomes[FAILED] += 1
            self._reports.refused(trigger.notification.kind, FOLDER, str(error))
            return []
        self._reports.retain_refusals({hook.name for hook in found if hook.refused})
        return found

    def _run(self, trigger: HookTrigger, hook: Hook) -> None:
        if hook.refused:
            ended = process.HookResult(FAILED, None, 0.0, hook.refused)
            self._reports.refused(trigger.notification.kind, hook.name, hook.refused)
        else:
            ended = self._ended(trigger, hook)
            self._reports.ended(
                trigger.notification.kind,
                hook.name,
                ended.outcome,
                exit_status=ended.exit_status,
                seconds=ended.seconds,
                output=ended.output,
            )
        self.outcomes[ended.outcome] += 1
        good = ended.outcome != FAILED and not ended.exit_status
        output = "" if good and not ended.output else f": {' '.join(ended.output.split())[-LOGGED_CHARACTERS:]}"
        log.log(
            logging.INFO if good else logging.WARNING,
            "%s: %s %s %s after %.1f s%s",
            self._cache.host,
            trigger.notification.shown,
            hook.name,
            ended.outcome,
            ended.seconds,
            output,
        )

    def _ended(self, trigger: HookTrigger, hook: Hook) -> process.HookResult:
        if self._stopping.is_set():
            raise Interrupted
        run = uuid.uuid4().hex
        self._reports.begun(run)
        try:
            return process.run(
                hook.command(),
                environment=environment(self._variables(trigger, run)),
                stdin=(json.dumps(self._given(trigger)) + "\n").encode(),
                timeout=self._timeout,
                stopping=self._stopping,
                record=self._context.hook_record(run),
            )
        except Interrupted:
            # The hook is not run again, so its outcome is reported here.
            sentence = f"The agent stopped while {hook.name} ran; it is not run again."
            self._reports.ended(trigger.notification.kind, hook.name, FAILED, output=sentence)
            raise

    def _given(self, trigger: HookTrigger) -> dict[str, object]:
        notification = trigger.notification
        return {
            "Cache": self._cache.host,
            "NotificationType": notification.kind,
            "StartTimeInUTC": notification.start_time or None,
            "IsReplica": {"1": True, "0": False}.get(notification.is_replica),
            "IPAddress": notification.ip_address or None,
            "SSLPort": int(notification.ssl_port) if notification.ssl_port else None,
            "NonSSLPort": int(notification.non_ssl_port) if notification.non_ssl_port else None,
            "HeardAt": to_text(trigger.at),
            "Raw": trigger.raw or None,
            "Coverage": trigger.state or None,
            "Reason": trigger.reason or None,
        }

    def _variables(self, trigger: HookTrigger, run: str) -> dict[str, object]:
        notification = trigger.notification
        return {
            "PHASE": PHASE,
            "CACHE": self._cache.host,
            "CACHE_TIER": self._cache.tier,
            "NOTIFICATION_TYPE": notification.kind,
            "START_TIME": notification.start_time,
            "IS_REPLICA": notification.is_replica,
            "IP_ADDRESS": notification.ip_address,
            "SSL_PORT": notification.ssl_port,
            "NON_SSL_PORT": notification.non_ssl_port,
            "HEARD_AT": to_text(trigger.at),
            "AGE_SECONDS": f"{max((self._context.clock.now() - trigger.at).total_seconds(), 0.0):.1f}",
            "RAW": trigger.raw,
            "COVERAGE": trigger.state,
            "REASON": trigger.reason,
            "RESOURCE_NAME": self._resource_name(),
            "MACHINE_ID": self._context.machine_id,
            "HOOK_TIMEOUT_SECONDS": f"{self._timeout:g}",
            "RUN": run,
        }
