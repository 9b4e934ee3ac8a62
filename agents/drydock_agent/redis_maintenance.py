"""Listens to `AzureRedisEvents` of one cache: every line into the spool as it came, and who listened when.

There is no replay: what is said while nobody listens is gone, so the gaps are reported like the lines. The connection
is watched by pings of our own, because a path that swallows bytes ends no read; it is replaced now and then, the new
one before the old one goes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING

from . import redis_maintenance_line as line
from .backoff import Backoff
from .clock import Clock
from .connections import Interrupted
from .late import Late
from .quiet import Quiet
from .redis_maintenance_caches import Cache, Lost, Refused, Stale
from .redis_maintenance_record import LOST, REFUSED, STALE, SUBSCRIBED, UNSUPPORTED, Record
from .redis_maintenance_token import Token
from .spool import Spool

if TYPE_CHECKING:
    from . import redis_maintenance_connection as connection
else:
    connection = Late(f"{__package__}.redis_maintenance_connection")

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

    look: float = 1.0
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


class RedisMaintenance:
    """One cache, one thread. `heard` gets each line, `lost` and `restored` what became of the connection."""

    def __init__(
        self,
        *,
        cache: Cache,
        token: Callable[[Cache], Token],
        spool: Spool,
        clock: Clock,
        quiet: Quiet,
        random: Random,
        reported: Callable[[], None],
        heard: Callable[[bytes, datetime], None] = lambda raw, at: None,
        lost: Callable[[str, str, datetime], None] = lambda state, reason, at: None,
        restored: Callable[[datetime], None] = lambda at: None,
        interrupt_token: Callable[[], None] = lambda: None,
        rhythm: Rhythm | None = None,
    ) -> None:
        self.name = f"redis {cache.host}"
        self.wake = threading.Event()
        self._cache = cache
        self._token = token
        self._clock = clock
        self._quiet = quiet
        self._random = random
        self._heard = heard
        self._lost = lost
        self._restored = restored
        self._interrupt_token = interrupt_token
        self._rhythm = rhythm or Rhythm()
        self._backoff = Backoff(random)
        self._subscription: connection.Subscription | None = None
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._record = Record(cache=cache, spool=spool, clock=clock, quiet=quiet, reported=reported)
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
        if not self._cache.publishes:
            self._report(UNSUPPORTED, "Azure publishes no maintenance notifications for a cache of this kind")
            return self._rhythm.look if self._record.waits else IDLE_SECONDS
        if self._again.is_set():
            self._again.clear()
            self._record.say_again()
        try:
            if self._subscription is not None:
                self._listen(self._subscription)
                return 0.0
            wait = self._due - self._clock.monotonic()
            if wait > 0:
                return min(wait, self._rhythm.look) if self._record.waits else wait
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

    @property
    def state(self) -> str:
        """The newest word of coverage; empty before the first."""
        return self._record.state

    def interrupt(self) -> None:
        """Stop listening, for good; that nobody listens from now on is written down first."""
        self._stopping.set()
        self._record.end()
        self._interrupt_token()
        subscription = self._subscription
        if subscription is not None:
            subscription.cut()

    def forget(self) -> None:
        """Say once more how it stands: the backend may not know it."""
        self._again.set()

    def _connect(self) -> None:
        subscription = self._open()
        at = self._clock.now()
        self._subscription = subscription
        self._alive()
        self._since = self._alive_at
        self._quiet.recovered(self.name, f"{self._cache.host}: the channel is heard again.")
        self._report(SUBSCRIBED, "")
        self._restored(at)

    def _open(self) -> connection.Subscription:
        """A connection that the server has acknowledged. Sets when it has to be replaced."""
        seconds = self._random.uniform(*self._rhythm.renew)
        username = self._cache.username
        if self._cache.entra:
            token = self._token(self._cache)
            username, password = username or token.username, token.secret
            seconds = min(seconds, max(token.seconds - self._rhythm.margin, self._rhythm.least))
        else:
            password = self._cache.secret()
        try:
            opened = connection.Subscription(self._cache, username=username, password=password)
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
        if isinstance(error, Refused):
            self._report(REFUSED, str(error))
        elif isinstance(error, Stale):
            self._report(STALE, str(error))
        elif had or self._record.state not in (LOST, STALE):
            self._report(LOST, str(error))
        self._quiet.warn(self.name, f"{self._cache.host}: nobody listens to its channel here: {error}.")
        if had and now < self._maintenance_until:
            self._hurry_until = now + self._rhythm.hurry_for
        if isinstance(error, Refused):
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
        heard = subscription.read(self._rhythm.look)
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
        self._heard(raw, at)

    def _renew(self, old: connection.Subscription) -> None:
        """Replace the connection: the new one listens before the old one goes, and no line is lost or taken twice."""
        try:
            new = self._open()
        except Lost as error:
            # The old one still listens.
            self._renew_at = self._clock.monotonic() + self._random.uniform(*self._rhythm.refused)
            self._quiet.warn(f"{self.name} renewal", f"{self._cache.host}: no second connection: {error}.")
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
        if before == SUBSCRIBED:
            self._lost(state, reason, at)


def overlap(before: list[bytes], after: list[bytes]) -> int:
    """How many lines at the beginning of `after` are those at the end of `before`."""
    return next((count for count in range(min(len(before), len(after)), 0, -1) if before[-count:] == after[:count]), 0)
