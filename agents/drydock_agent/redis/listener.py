"""Listens to `AzureRedisEvents` of one cache: every line into the spool as it came, and who listened when.

There is no replay: what is said while nobody listens is gone, so the gaps are reported like the lines. The connection
is watched by pings of our own, because a path that swallows bytes ends no read; it is replaced now and then, the new
one before the old one goes.
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
from drydock_agent.redis.errors import Lost, RefusedByCache, Stale
from drydock_agent.redis.hooks import CacheHooks
from drydock_agent.redis.login import TokenClient, login_of
from drydock_agent.redis.record import LOST, REFUSED, STALE, SUBSCRIBED, UNSUPPORTED, Record
from drydock_agent.settings.caches import Cache

if TYPE_CHECKING:
    from drydock_agent.redis import subscription as connection
else:
    connection = LazyImport("drydock_agent.redis.subscription")

IDLE_SECONDS = 3600.0
# After a line that says so a lost connection is no surprise, and is soon to be had again.
MAINTENANCE_SECONDS = 300.0

log = logging.getLogger("drydock_agent")


@dataclass(slots=True, frozen=True, kw_only=True)
class Rhythm:
    """All in seconds; pairs are the least and the most of a random wait.

    A connection whose path swallows bytes is given up after `ping` and `pong`, and what a read and its rest may take
    between them: less than 45 in all.
    """

    read: float = 1.0
    ping: float = 28.0
    pong: float = 10.0
    hurry: tuple[float, float] = (1.0, 2.0)
    hurry_for: float = 60.0
    # Seldom, and often enough that a mended key or right is on the pages within a minute.
    refused: tuple[float, float] = (20.0, 40.0)
    # A connection that lasted so long was a good one; after a shorter one the waits go on growing.
    steady: float = 30.0
    # Azure closes what is old or idle in its own time; this spreads a fleet over an hour.
    renew: tuple[float, float] = (3600.0, 7200.0)
    # Before a token ends, and the least time between two connections for the sake of one.
    margin: float = 300.0
    least: float = 30.0
    handover: float = 3.0


class CacheListener:
    """One cache, one thread. `hooks` are told of each line, and of what becomes of the connection."""

    def __init__(
        self,
        context: Context,
        cache: Cache,
        *,
        tokens: TokenClient,
        hooks: CacheHooks | None = None,
        rhythm: Rhythm | None = None,
    ) -> None:
        self.name = f"redis {cache.host}"
        self.wake = threading.Event()
        self._cache = cache
        self._clock = context.clock
        self._limiter = context.limiter
        self._random = context.random
        self._tokens = tokens
        self._hooks = hooks
        self._rhythm = rhythm or Rhythm()
        self._backoff = Backoff(context.random)
        self._subscription: connection.Subscription | None = None
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._record = Record(context, cache)
        self._due = 0.0
        self._hurry_until = 0.0
        self._maintenance_until = 0.0
        self._renew_at = 0.0
        self._since = 0.0
        self._alive_at = 0.0
        self._pinged_at: float | None = None

    def step(self) -> float:
        """Connect when that is due, else listen for a moment. Returns the seconds until the next step."""
        if self._stopping.is_set():
            raise Interrupted
        self._record.write()
        if self._again.is_set():
            self._again.clear()
            self._record.say_again()
        if not self._cache.publishes:
            self._report(UNSUPPORTED, "Azure publishes no maintenance notifications for a cache of this kind")
            return self._rhythm.read if self._record.waits else IDLE_SECONDS
        try:
            if self._subscription is not None:
                self._listen(self._subscription)
                return 0.0
            wait = self._due - self._clock.monotonic()
            if wait > 0:
                return min(wait, self._rhythm.read) if self._record.waits else wait
            self._connect()
        except Lost as error:
            if self._stopping.is_set():
                self._close()
                raise Interrupted from error
            return self._retreat(error)
        except Interrupted:
            self._close()
            raise
        return 0.0

    def interrupt(self) -> None:
        """Stop listening, for good; that nobody listens from now on is written down first."""
        self._stopping.set()
        self._record.end()
        self._tokens.interrupt()
        subscription = self._subscription
        if subscription is not None:
            subscription.cut()

    def forget(self) -> None:
        """Say once more how it stands: the backend may not know it."""
        self._again.set()
        self.wake.set()

    def _connect(self) -> None:
        subscription = self._open()
        at = self._clock.now()
        self._subscription = subscription
        self._alive()
        self._since = self._alive_at
        self._limiter.recovered(self.name, f"{self._cache.host}: the channel is heard again.")
        self._report(SUBSCRIBED, "")
        if self._hooks is not None:
            self._hooks.restored(at)

    def _open(self) -> connection.Subscription:
        """A connection that the server has acknowledged. Sets when it has to be replaced."""
        login = login_of(self._cache, self._tokens)
        seconds = self._random.uniform(*self._rhythm.renew)
        seconds = min(seconds, max(login.seconds - self._rhythm.margin, self._rhythm.least))
        try:
            opened = connection.Subscription(self._cache, login)
        except ModuleNotFoundError as error:
            raise Lost("the Python package redis is not installed (drydock-agent[redis] brings it)") from error
        self._renew_at = self._clock.monotonic() + seconds
        return opened

    def _retreat(self, error: Lost) -> float:
        """Note that nobody listens now, and when to try again."""
        now = self._clock.monotonic()
        had = self._subscription is not None
        self._close()
        if had and now - self._since >= self._rhythm.steady:
            self._backoff.succeeded()
        if isinstance(error, RefusedByCache):
            self._report(REFUSED, str(error))
        elif isinstance(error, Stale):
            self._report(STALE, str(error))
        elif had or self._record.state not in (LOST, STALE):
            self._report(LOST, str(error))
        self._limiter.warn(self.name, f"{self._cache.host}: nobody listens to its channel here: {error}.")
        if had and now < self._maintenance_until:
            self._hurry_until = now + self._rhythm.hurry_for
        if isinstance(error, RefusedByCache):
            wait = self._random.uniform(*self._rhythm.refused)
        elif now < self._hurry_until:
            wait = self._random.uniform(*self._rhythm.hurry)
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
        heard = subscription.read(self._rhythm.read)
        now = self._clock.monotonic()
        if heard is not None:
            self._alive()
            self._take(heard)
        elif self._pinged_at is not None:
            if now - self._pinged_at >= self._rhythm.pong:
                raise Stale(f"no sign of life for {now - self._alive_at:.0f} s")
        elif now - self._alive_at >= self._rhythm.ping:
            self._pinged_at = now
            subscription.ping()

    def _alive(self) -> None:
        self._alive_at, self._pinged_at = self._clock.monotonic(), None

    def _take(self, heard: connection.Heard) -> None:
        if heard.kind == connection.PONG:
            self._record.alive()
        if heard.kind != connection.LINE:
            return
        at, raw = self._clock.now(), heard.data
        # Onto the disk before anybody looks at what it says.
        self._record.line(raw, at)
        said = line.read(raw)
        if said.kind in (line.STARTING, line.START):
            self._maintenance_until = self._clock.monotonic() + MAINTENANCE_SECONDS
        log.info("%s: %s.", self._cache.host, said.shown)
        if self._hooks is not None:
            self._hooks.heard(raw, at)

    def _renew(self, old: connection.Subscription) -> None:
        """Replace the connection: the new one listens before the old one goes, and no line is lost or taken twice."""
        try:
            new = self._open()
        except Lost as error:
            # The old one still listens.
            self._renew_at = self._clock.monotonic() + self._random.uniform(*self._rhythm.refused)
            self._limiter.warn(f"{self.name} renewal", f"{self._cache.host}: no second connection: {error}.")
            return
        self._subscription = new
        before = self._last_of(old)
        old.close()
        new.ping()
        after, deadline = [], self._clock.monotonic() + self._rhythm.handover
        while (left := deadline - self._clock.monotonic()) > 0:
            heard = new.read(left)
            if heard is not None and heard.kind == connection.PONG:
                break
            if heard is not None and heard.kind == connection.LINE:
                after.append(heard)
        self._alive()
        for heard in after[overlap([each.data for each in before], [each.data for each in after]) :]:
            self._take(heard)

    def _last_of(self, old: connection.Subscription) -> list[connection.Heard]:
        """Take what the old connection still has, to its end; returns those lines."""
        lines: list[connection.Heard] = []
        deadline = self._clock.monotonic() + self._rhythm.handover
        try:
            old.unsubscribe()
            while (left := deadline - self._clock.monotonic()) > 0:
                heard = old.read(left)
                if heard is not None and heard.kind == connection.UNSUBSCRIBED:
                    break
                if heard is not None and heard.kind == connection.LINE:
                    self._take(heard)
                    lines.append(heard)
        except Lost as error:
            # It may not be allowed to unsubscribe, or be gone; the new one listens already.
            log.debug("%s: the old connection ended: %s.", self._cache.host, error)
        return lines

    def _report(self, state: str, reason: str) -> None:
        before = self._record.state
        if state == before:
            return
        at = self._clock.now()
        self._record.coverage(state, reason, at)
        log.info("%s: %s%s.", self._cache.host, state, f" ({reason})" if reason else "")
        if before == SUBSCRIBED and self._hooks is not None:
            self._hooks.lost(state, reason, at)


def overlap(before: list[bytes], after: list[bytes]) -> int:
    """How many lines at the beginning of `after` are those at the end of `before`."""
    return next((count for count in range(min(len(before), len(after)), 0, -1) if before[-count:] == after[:count]), 0)
