"""Listener for the channel `AzureRedisEvents` of one cache. It writes each line, and each change of coverage, to the
spool.

Redis does not repeat missed notifications, so gaps are reported, too. The listener sends pings, because a read never
ends if the network drops packets. It replaces the connection periodically: the new one is opened before the old one is
closed.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drydock_agent.backoff import Backoff
from drydock_agent.connections import Interrupted
from drydock_agent.context import Context
from drydock_agent.lazy_import import LazyImport
from drydock_agent.redis import notification as line
from drydock_agent.redis.coverage_record import LOST, REFUSED, STALE, SUBSCRIBED, UNSUPPORTED, CoverageRecord
from drydock_agent.redis.errors import CacheConnectionLost, CacheConnectionStale, RefusedByCache
from drydock_agent.redis.hooks import CacheHooks
from drydock_agent.redis.login import TokenClient, login_for
from drydock_agent.settings.caches import Cache

if TYPE_CHECKING:
    from drydock_agent.redis import subscription as connection
else:
    connection = LazyImport("drydock_agent.redis.subscription")

IDLE_SECONDS = 3600.0
# After a maintenance notification a lost connection is expected and retried quickly.
MAINTENANCE_SECONDS = 300.0

log = logging.getLogger("drydock_agent")


@dataclass(slots=True, frozen=True, kw_only=True)
class Timing:
    """Intervals of the listener in seconds. A pair gives the bounds of a random interval.

    If the network drops packets, the connection is closed after `ping`, `pong` and one read: less than 45 seconds in
    total.
    """

    read: float = 1.0
    ping: float = 28.0
    pong: float = 10.0
    hurry: tuple[float, float] = (1.0, 2.0)
    hurry_for: float = 60.0
    # A corrected key or permission shows on the pages within a minute.
    refused: tuple[float, float] = (20.0, 40.0)
    # A connection that has lasted this many seconds resets the backoff.
    steady: float = 30.0
    # Azure closes old connections; this spreads the reconnects of a fleet over an hour.
    renew: tuple[float, float] = (3600.0, 7200.0)
    # Time before a token expires, and the least time between two renewals for a token.
    margin: float = 300.0
    least: float = 30.0
    handover: float = 3.0


class CacheListener:
    """Listens to one cache in one thread. `hooks` are called for each line and each change of the connection."""

    def __init__(
        self,
        context: Context,
        cache: Cache,
        *,
        tokens: TokenClient,
        hooks: CacheHooks | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.name = f"redis {cache.host}"
        self.wake = threading.Event()
        self._cache = cache
        self._clock = context.clock
        self._limiter = context.limiter
        self._random = context.random
        self._tokens = tokens
        self._hooks = hooks
        self._timing = timing or Timing()
        self._backoff = Backoff(context.random)
        self._subscription: connection.Subscription | None = None
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._record = CoverageRecord(context, cache)
        self._due = 0.0
        self._hurry_until = 0.0
        self._maintenance_until = 0.0
        self._renew_at = 0.0
        self._since = 0.0
        self._alive_at = 0.0
        self._pinged_at: float | None = None

    def step(self) -> float:
        """Connect if this is due; otherwise read for a short time. Return the seconds until the next step."""
        if self._stopping.is_set():
            raise Interrupted
        self._record.write()
        if self._again.is_set():
            self._again.clear()
            self._record.resend_state()
        if not self._cache.publishes:
            self._report(UNSUPPORTED, "Azure publishes no maintenance notifications for a cache of this kind")
            return self._timing.read if self._record.waits else IDLE_SECONDS
        try:
            if self._subscription is not None:
                self._listen(self._subscription)
                return 0.0
            wait = self._due - self._clock.monotonic()
            if wait > 0:
                return min(wait, self._timing.read) if self._record.waits else wait
            self._connect()
        except CacheConnectionLost as error:
            if self._stopping.is_set():
                self._close()
                raise Interrupted from error
            return self._back_off(error)
        except Interrupted:
            self._close()
            raise
        return 0.0

    def interrupt(self) -> None:
        """Report the end of coverage, then stop listening."""
        self._stopping.set()
        self._record.end()
        self._tokens.interrupt()
        subscription = self._subscription
        if subscription is not None:
            subscription.cut()

    def resend(self) -> None:
        """Report the coverage again, because the backend may have lost it."""
        self._again.set()
        self.wake.set()

    def _connect(self) -> None:
        subscription = self._open()
        at = self._clock.now()
        self._subscription = subscription
        self._alive()
        self._since = self._alive_at
        self._limiter.recovered(self.name, f"{self._cache.host}: the connection to the channel is restored.")
        self._report_subscription()
        if self._hooks is not None:
            self._hooks.restored(at)

    def _report_subscription(self) -> None:
        """Report that this machine listens, or that the cache will send nothing because it was replaced. In that case
        the agent still listens, because the replacement may be rolled back.
        """
        replacement = self._subscription.replacement if self._subscription is not None else ""
        self._report(UNSUPPORTED if replacement else SUBSCRIBED, replacement)

    def _open(self) -> connection.Subscription:
        """Open a connection that the server has acknowledged, and set the time of its replacement."""
        login = login_for(self._cache, self._tokens)
        seconds = self._random.uniform(*self._timing.renew)
        seconds = min(seconds, max(login.seconds - self._timing.margin, self._timing.least))
        try:
            opened = connection.Subscription(self._cache, login)
        except ModuleNotFoundError as error:
            raise CacheConnectionLost(
                "the Python package redis is not installed (drydock-agent[redis] brings it)"
            ) from error
        self._renew_at = self._clock.monotonic() + seconds
        return opened

    def _back_off(self, error: CacheConnectionLost) -> float:
        """Report the gap. Return the seconds until the next attempt."""
        now = self._clock.monotonic()
        had = self._subscription is not None
        self._close()
        if had and now - self._since >= self._timing.steady:
            self._backoff.succeeded()
        if isinstance(error, RefusedByCache):
            self._report(REFUSED, str(error))
        elif isinstance(error, CacheConnectionStale):
            self._report(STALE, str(error))
        elif had or self._record.state not in (LOST, STALE):
            self._report(LOST, str(error))
        self._limiter.warn(self.name, f"{self._cache.host}: this machine does not receive its notifications: {error}.")
        if had and now < self._maintenance_until:
            self._hurry_until = now + self._timing.hurry_for
        if isinstance(error, RefusedByCache):
            wait = self._random.uniform(*self._timing.refused)
        elif now < self._hurry_until:
            wait = self._random.uniform(*self._timing.hurry)
        else:
            wait = self._backoff.failed()
        self._due = now + wait
        return wait

    def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._pinged_at = None
        if subscription is not None:
            subscription.close()

    def _listen(self, subscription: connection.Subscription) -> None:
        if self._clock.monotonic() >= self._renew_at:
            self._renew(subscription)
            return
        heard = subscription.read(self._timing.read)
        now = self._clock.monotonic()
        if heard is not None:
            self._alive()
            self._take(heard)
        elif self._pinged_at is not None:
            if now - self._pinged_at >= self._timing.pong:
                raise CacheConnectionStale(f"no sign of life for {now - self._alive_at:.0f} s")
        elif now - self._alive_at >= self._timing.ping:
            self._pinged_at = now
            subscription.ping()

    def _alive(self) -> None:
        self._alive_at, self._pinged_at = self._clock.monotonic(), None

    def _take(self, heard: connection.CacheReply) -> None:
        if heard.kind == connection.PONG:
            self._record.alive()
        if heard.kind != connection.LINE:
            return
        at, raw = self._clock.now(), heard.data
        # A line has arrived, so this server publishes notifications.
        self._report(SUBSCRIBED, "")
        # Written to disk before it is interpreted.
        self._record.line(raw, at)
        notification = line.read(raw)
        if notification.kind in (line.STARTING, line.START):
            self._maintenance_until = self._clock.monotonic() + MAINTENANCE_SECONDS
        log.info("%s: %s.", self._cache.host, notification.shown)
        if self._hooks is not None:
            self._hooks.heard(raw, at)

    def _renew(self, old: connection.Subscription) -> None:
        """Replace the connection. No line is lost or recorded twice."""
        try:
            new = self._open()
        except CacheConnectionLost as error:
            # The old connection still works.
            self._renew_at = self._clock.monotonic() + self._random.uniform(*self._timing.refused)
            self._limiter.warn(f"{self.name} renewal", f"{self._cache.host}: no second connection: {error}.")
            return
        self._subscription = new
        before = self._last_of(old)
        old.close()
        new.ping()
        after, deadline = [], self._clock.monotonic() + self._timing.handover
        while (left := deadline - self._clock.monotonic()) > 0:
            heard = new.read(left)
            if heard is not None and heard.kind == connection.PONG:
                break
            if heard is not None and heard.kind == connection.LINE:
                after.append(heard)
        self._alive()
        self._report_subscription()
        for heard in after[overlap([each.data for each in before], [each.data for each in after]) :]:
            self._take(heard)

    def _last_of(self, old: connection.Subscription) -> list[connection.CacheReply]:
        """Read and return the remaining lines of the old connection."""
        lines: list[connection.CacheReply] = []
        deadline = self._clock.monotonic() + self._timing.handover
        try:
            old.unsubscribe()
            while (left := deadline - self._clock.monotonic()) > 0:
                heard = old.read(left)
                if heard is not None and heard.kind == connection.UNSUBSCRIBED:
                    break
                if heard is not None and heard.kind == connection.LINE:
                    self._take(heard)
                    lines.append(heard)
        except CacheConnectionLost as error:
            # UNSUBSCRIBE may be forbidden, or the connection lost; the new one is subscribed already.
            log.debug("%s: the old connection ended: %s.", self._cache.host, error)
        return lines

    def _report(self, state: str, reason: str) -> None:
        before = self._record.state
        if state == before:
            return
        at = self._clock.now()
        self._record.coverage(state, reason, at)
        log.info("%s: %s%s.", self._cache.host, state, f" ({reason})" if reason else "")
        if before == SUBSCRIBED and state != UNSUPPORTED and self._hooks is not None:
            self._hooks.lost(state, reason, at)


def overlap(before: list[bytes], after: list[bytes]) -> int:
    """Return how many lines at the start of `after` repeat the end of `before`. Used when two connections received the
    same lines.
    """
    return next((count for count in range(min(len(before), len(after)), 0, -1) if before[-count:] == after[:count]), 0)
