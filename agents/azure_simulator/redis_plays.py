"""Simulated maintenances of a cache, line by line, on the Redis server that simulates it.

`failover` has the times of the example on Microsoft's page: announced at 16:21:39, started at 16:34:46, ended at
16:37:48.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from azure_simulator import redis_events
from azure_simulator.announcement import RefusedError
from azure_simulator.clock import Clock, rfc3339
from azure_simulator.fleet import Cache

# All nodes of a cache have one address; their ports distinguish them.
ADDRESS = "52.158.249.185"
SSL_PORT, NON_SSL_PORT = 15000, 13000
PLAYS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a maintenance: a line about the node `node`, published `at` seconds after the beginning. With an
    empty `kind`, the server instead disconnects all subscribers and answers no client for `away` seconds. `start` also
    counts from the beginning.
    """

    at: float
    kind: str = ""
    start: float | None = None
    replica: bool = False
    node: int = 0
    away: float = 0.0


_ANNOUNCED = (
    Step(0, "NodeMaintenanceScheduled", start=858),
    Step(767, "NodeMaintenanceStarting", start=787),
    Step(787, "NodeMaintenanceStart"),
)

PLAYS: dict[str, tuple[Step, ...]] = {
    # The primary stops and the replica takes over; FailoverComplete names the new primary. The old one becomes replica.
    "failover": (
        *_ANNOUNCED,
        Step(788, away=7),
        Step(797, "NodeMaintenanceFailoverComplete", node=1),
        Step(969, "NodeMaintenanceEnded", start=969, replica=True),
    ),
    # No connections are lost, and no replica is promoted.
    "replica": (
        Step(0, "NodeMaintenanceScheduled", start=858, replica=True, node=1),
        Step(767, "NodeMaintenanceStarting", start=787, replica=True, node=1),
        Step(787, "NodeMaintenanceStart", replica=True, node=1),
        Step(969, "NodeMaintenanceEnded", start=969, replica=True, node=1),
    ),
    "scale": (
        Step(0, "NodeMaintenanceScaleComplete", node=2),
        Step(3, "NodeMaintenanceScaleComplete", replica=True, node=3),
    ),
    # The maintenance is announced twice but never starts.
    "announced_never_started": (
        Step(0, "NodeMaintenanceScheduled", start=858),
        Step(300, "NodeMaintenanceScheduled", start=858),
    ),
    # One node: no other can take over, and the cache is down.
    "basic_tier": (
        *_ANNOUNCED,
        Step(788, away=120),
        Step(969, "NodeMaintenanceEnded", start=969),
    ),
}


def line(step: Step, begun: datetime, speed: float) -> str:
    """Return the notification line of a step, with the pairs in the order of Microsoft's page. `begun` is the time of
    the beginning.
    """
    pairs = [("NotificationType", step.kind)]
    if step.start is not None:
        at = begun + timedelta(seconds=step.start / speed)
        pairs.append(("StartTimeInUTC", at.strftime("%Y-%m-%dT%H:%M:%S")))
    pairs += [
        ("IsReplica", str(step.replica)),
        ("IPAddress", ADDRESS),
        ("SSLPort", str(SSL_PORT + step.node)),
        ("NonSSLPort", str(NON_SSL_PORT + step.node)),
    ]
    return "|".join(word for pair in pairs for word in pair)


@dataclass(slots=True)
class Playing:
    """A running or finished maintenance: the published lines with the number of clients that received them or were
    disconnected. `error` is set if it stopped early.
    """

    cache: str
    play: str
    speed: float
    begun: datetime
    said: list[dict[str, Any]] = field(default_factory=list)
    playing: bool = True
    error: str = ""

    def shown(self) -> dict[str, Any]:
        """Return the state for the response of the control call."""
        return {
            "cache": self.cache,
            "play": self.play,
            "speed": self.speed,
            "begun": rfc3339(self.begun),
            "said": self.said,
            "playing": self.playing,
            "error": self.error,
        }


class Maintenances:
    """The maintenances on all servers, one at a time on each. Needs a running event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._plays: deque[Playing] = deque(maxlen=PLAYS_SHOWN)
        self._tasks: dict[asyncio.Task[None], Playing] = {}

    def begin(self, cache: Cache, play: str, speed: float) -> dict[str, Any]:
        """Start a maintenance on the cache's server. Return the cache, the name and the duration in seconds, without
        waiting. Raises RefusedError if a maintenance is already running there.
        """
        if any(each.cache == cache.host for each in self._tasks.values()):
            raise RefusedError(409, f"a maintenance of {cache.host} is being played already")
        playing = Playing(cache.host, play, speed, self._clock.now())
        self._plays.append(playing)
        task = asyncio.create_task(self._play(playing, cache.server))
        self._tasks[task] = playing
        task.add_done_callback(self._tasks.pop)
        return {"cache": cache.host, "play": play, "seconds": PLAYS[play][-1].at / speed}

    def shown(self) -> list[dict[str, Any]]:
        """Return the latest maintenances, oldest first."""
        return [playing.shown() for playing in self._plays]

    def stop(self) -> None:
        """Stop all maintenances. Lines already published remain."""
        for task in list(self._tasks):
            task.cancel()

    async def _play(self, playing: Playing, url: str) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            for step in PLAYS[playing.play]:
                await asyncio.sleep(begun + step.at / playing.speed - loop.time())
                await self._take(step, playing, url)
        except redis_events.NotPublishedError as error:
            playing.error = str(error)
        finally:
            playing.playing = False

    async def _take(self, step: Step, playing: Playing, url: str) -> None:
        call: Coroutine[Any, Any, int]
        if step.kind:
            raw = line(step, playing.begun, playing.speed)
            said: dict[str, Any] = {"raw": raw}
            call, word = redis_events.publish(url, raw), "subscribers"
        else:
            said = {"raw": None}
            call, word = redis_events.cut(url, step.away / playing.speed), "cut"
        at = rfc3339(self._clock.now())
        playing.said.append({"at": at, **said, word: await call})
