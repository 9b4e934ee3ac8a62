"""Stories: typical events of a fleet, compressed from a day to minutes. They run singly, or all in turn without end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from azure_simulator.announcement import RefusedError, number, one_of
from azure_simulator.azure import SCHEDULED, STARTED, Azure
from azure_simulator.fleet import Cache, MachineSet

# The times of a story are divided by its speed. The first event comes at once; then one at each interval, up to this
# many.
FIRST_SECONDS = 2.0
GAP_SECONDS = 25.0
MOST_OPEN = 4
_LOOK_SECONDS = 0.5
# A cache's maintenance takes a quarter of an hour; in a story three minutes, and the next begins after a while.
REDIS_STORY = "redis-failover"
REDIS_SPEED = 6.0
REDIS_FIRST_SECONDS = 20.0
REDIS_GAP_SECONDS = 600.0
REDIS_PLAYS = ("failover", "replica", "failover", "announced_never_started", "scale")
_DAY = 86_400.0


class Controls(Protocol):
    """The control calls that a story needs."""

    @property
    def azure(self) -> Azure: ...
    def create_event(self, body: Mapping[str, Any]) -> dict[str, str]: ...
    def event(self, event_id: str) -> dict[str, Any]: ...
    def events(self) -> list[dict[str, Any]]: ...
    def move_event(self, event_id: str, move: str) -> dict[str, Any]: ...
    def play_redis(self, body: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Story:
    """One event of a story; it may be cancelled if it is not approved in time. `kinds` are kinds of sets, preferred
    first.
    """

    kinds: tuple[str, ...]
    says: Mapping[str, Any]
    notice_seconds: float
    started_seconds: float
    machines: int = 1
    cancelled_after_seconds: float | None = None
    # A long demo needs the machines again that it deletes.
    back_after_seconds: float | None = None


STORIES: dict[str, Story] = {
    # Microsoft's own sample: two machines of one host, paused for five seconds.
    "live-migration": Story(
        ("availability_set", "cloud_service", "scale_set"),
        {"type": "Freeze", "source": "Platform", "duration_seconds": 5},
        notice_seconds=300,
        started_seconds=40,
        machines=2,
    ),
    "user-restart": Story(
        ("standalone", "availability_set"),
        {"type": "Reboot", "source": "User"},
        notice_seconds=480,
        started_seconds=45,
    ),
    "preempt": Story(
        ("scale_set",),
        {"type": "Preempt", "source": "Platform"},
        notice_seconds=45,
        started_seconds=20,
        back_after_seconds=60,
    ),
    "cancellation": Story(
        ("cloud_service", "availability_set"),
        {"type": "Reboot", "source": "Platform", "duration_seconds": 30},
        notice_seconds=600,
        started_seconds=45,
        cancelled_after_seconds=100,
    ),
    "hardware-failure": Story(
        ("availability_set", "cloud_service"),
        {"type": "Reboot", "source": "Platform", "starts_as": STARTED},
        notice_seconds=0,
        started_seconds=75,
    ),
    "terminate": Story(
        ("scale_set",),
        {"type": "Terminate", "source": "Platform"},
        notice_seconds=300,
        started_seconds=30,
        back_after_seconds=60,
    ),
    # Days ahead; withdrawn in the end, as when a user has moved the machine to sound hardware.
    "degraded-host": Story(
        ("availability_set", "standalone"),
        {"type": "Redeploy", "source": "Platform"},
        notice_seconds=3 * _DAY,
        started_seconds=60,
        cancelled_after_seconds=900,
    ),
}


@dataclass(slots=True)
class Player:
    """Runs stories with control calls. Needs a running event loop."""

    control: Controls
    _tasks: dict[asyncio.Task[None], str] = field(default_factory=dict)
    _turn: itertools.count[int] = field(default_factory=itertools.count)

    def begin(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start the story `story` of the body, or `all` in turn without end. Fields other than `speed` are added to the
        event. Raises RefusedError.
        """
        name = one_of(body, "story", (*STORIES, REDIS_STORY, "all"))
        speed = number(body, "speed", default=1.0, least=0.001)
        if name == REDIS_STORY:
            cache = body.get("cache") or next((each.host for each in self._caches()), "")
            played = self.control.play_redis({"cache": cache, "play": "failover", "speed": REDIS_SPEED * speed})
            return {"story": name, **played}
        if name != "all":
            changes = {key: value for key, value in body.items() if key not in ("story", "speed")}
            return {"story": name, "EventId": self._announce(name, speed, changes)}
        if "all" in self._tasks.values():
            raise RefusedError(409, "all stories are being played already")
        self._spawn(self._play_all(speed), name)
        if self._caches():
            self._spawn(self._play_caches(speed), REDIS_STORY)
        return {"story": name}

    def shown(self) -> dict[str, Any]:
        """Return the available stories, and those that still run."""
        return {"stories": [*STORIES, REDIS_STORY, "all"], "playing": list(self._tasks.values())}

    def stop(self) -> None:
        """Stop all stories. Announced events remain."""
        for task in list(self._tasks):
            task.cancel()

    async def _play_all(self, speed: float) -> None:
        await asyncio.sleep(FIRST_SECONDS / speed)
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        for name in itertools.cycle(STORIES):
            # An empty board is filled at once; a full one is left alone. Polled, not awaited: time and approvals change
            # the events, not this player.
            while (count := self._open_count()) >= MOST_OPEN or (count and loop.time() < next_at):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS / max(1.0, speed))
            self._announce(name, speed, {})
            next_at = loop.time() + GAP_SECONDS / speed
            await asyncio.sleep(0)

    async def _play_caches(self, speed: float) -> None:
        await asyncio.sleep(REDIS_FIRST_SECONDS / speed)
        for play, cache in zip(itertools.cycle(REDIS_PLAYS), itertools.cycle(self._caches()), strict=False):
            # Another play may already use it.
            with suppress(RefusedError):
                self.control.play_redis({"cache": cache.host, "play": play, "speed": REDIS_SPEED * speed})
            await asyncio.sleep(REDIS_GAP_SECONDS / speed)

    def _caches(self) -> list[Cache]:
        return [cache for cache in self.control.azure.fleet.caches if cache.server]

    def _open_count(self) -> int:
        return sum(event["status"] in (SCHEDULED, STARTED) for event in self.control.events())

    def _announce(self, name: str, speed: float, changes: Mapping[str, Any]) -> str:
        story = STORIES[name]
        body: dict[str, Any] = {
            **story.says,
            "notice_seconds": story.notice_seconds / speed,
            "started_seconds": story.started_seconds / speed,
        }
        if story.back_after_seconds is not None:
            body["back_after_seconds"] = story.back_after_seconds / speed
        if "set" not in changes:
            in_set = self._choose(story.kinds)
            body["set"] = in_set.key
            body["resources"] = self._free_machines(in_set, story.machines)
        event_id = self.control.create_event({**body, **changes})["EventId"]
        if story.cancelled_after_seconds is not None:
            self._spawn(self._cancel_later(event_id, story.cancelled_after_seconds / speed), name)
        return event_id

    async def _cancel_later(self, event_id: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.control.event(event_id)["status"] == SCHEDULED:
            self.control.move_event(event_id, "cancel")

    def _spawn(self, playing: Any, name: str) -> None:
        task = asyncio.create_task(playing)
        self._tasks[task] = name
        task.add_done_callback(self._tasks.pop)

    def _choose(self, kinds: tuple[str, ...]) -> MachineSet:
        sets = self.control.azure.fleet.sets
        for kind in kinds:
            of_kind = [each for each in sets if each.kind == kind]
            if of_kind:
                return of_kind[next(self._turn) % len(of_kind)]
        return sets[next(self._turn) % len(sets)]

    def _free_machines(self, in_set: MachineSet, wanted: int) -> list[str]:
        """Return up to `wanted` machines of one update domain, preferably without an open event."""
        busy = {name for event in self.control.azure.open_events(in_set) for name in event.resources}
        free = [machine for machine in in_set.machines if machine.name not in busy] or list(in_set.machines)
        # Not always the same ones.
        first = free[next(self._turn) % len(free)]
        others = [m for m in free if m is not first and m.update_domain == first.update_domain]
        return [machine.name for machine in [first, *others][:wanted]]
