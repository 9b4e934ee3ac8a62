"""Control calls, with which a test or demo makes Azure act. Each responds with JSON; `error` states why a call was
refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from azure_simulator import announcement, redis_events
from azure_simulator.announcement import RefusedError, number, one_of, only, optional_number, text
from azure_simulator.attestation import INTERMEDIATE_PATH, Authority, UnavailableError
from azure_simulator.azure import Azure, Event, NotPossibleError
from azure_simulator.clock import Clock, rfc3339
from azure_simulator.documents import VERSIONS, encoded, rendered_events
from azure_simulator.faults import STAGES, Faults
from azure_simulator.fleet import Cache, FleetError
from azure_simulator.http import Answer, Request, Response
from azure_simulator.log import Log
from azure_simulator.redis_plays import PLAYS, Maintenances
from azure_simulator.stories import Player

Body = Mapping[str, Any]


class Control:
    """The control calls as methods, which stories use, too, and the table that maps HTTP requests to them."""

    def __init__(self, azure: Azure, faults: Faults, log: Log, clock: Clock, authority: Authority) -> None:
        self._azure = azure
        self._authority = authority
        self._faults = faults
        self._log = log
        self._clock = clock
        self.maintenances = Maintenances(clock)
        self.player = Player(self)
        self._calls: dict[tuple[str, str], Callable[[Request], Any]] = {
            ("GET", "/control/events"): lambda request: self.events(),
            ("POST", "/control/events"): lambda request: self.create_event(_body(request)),
            ("GET", "/control/changes"): self._changes,
            ("GET", "/control/faults"): lambda request: [fault.shown() for fault in self._faults.waiting()],
            ("POST", "/control/faults"): lambda request: self.add_fault(_body(request)),
            ("DELETE", "/control/faults"): lambda request: self._faults.clear(self._azure.machines),
            ("GET", "/control/log"): self._shown_log,
            ("GET", "/control/clock"): lambda request: self._shown_clock(),
            ("POST", "/control/clock"): lambda request: self.move_clock(_body(request)),
            ("GET", "/control/machines"): lambda request: self.machines(),
            ("GET", "/control/redis"): lambda request: self.maintenances.shown(),
            ("GET", "/control/stories"): lambda request: self.player.shown(),
            ("POST", "/control/stories"): lambda request: self.player.begin(_body(request)),
            ("DELETE", "/control/stories"): lambda request: self.player.stop(),
        }

    def answer(self, request: Request) -> Answer:
        path = request.path.rstrip("/")
        if (request.method, path) == ("POST", "/control/redis"):
            return self._redis(request)
        if request.method == "GET" and path in ("/control/authority", INTERMEDIATE_PATH):
            return self._certificates(whole=path != INTERMEDIATE_PATH)
        try:
            call = self._calls.get((request.method, path))
            result = call(request) if call is not None else self._about_one_event(request, path)
        except RefusedError as refusal:
            return _refusal(refusal)
        return Response(200, encoded({} if result is None else result))

    @property
    def azure(self) -> Azure:
        return self._azure

    def create_event(self, body: Body) -> dict[str, Any]:
        """Announce one or several events. Return the `EventId`, or the `EventIds`. Raises RefusedError."""
        if "events" in body:
            made = announcement.announce_all(self._azure, body, self._clock.now())
            return {"EventIds": [event.event_id for event in made]}
        return {"EventId": announcement.announce(self._azure, body, self._clock.now()).event_id}

    def events(self) -> list[dict[str, Any]]:
        """Return all events with their times, oldest first."""
        self._azure.settle(self._clock.now())
        return [announcement.shown(event) for event in self._azure.events()]

    def event(self, event_id: str) -> dict[str, Any]:
        """Return one event with its times. Raises RefusedError."""
        self._azure.settle(self._clock.now())
        return announcement.shown(self._find(event_id))

    def move_event(self, event_id: str, move: str) -> dict[str, Any]:
        """Change an event; `move` is `start`, `complete` or `cancel`. Return the event. Raises RefusedError."""
        now = self._clock.now()
        self._azure.settle(now)
        event = self._find(event_id)
        moves = {"start": self._azure.start, "complete": self._azure.complete, "cancel": self._azure.cancel}
        if move not in moves:
            raise RefusedError(404, f"an event can be moved by {', '.join(moves)}")
        try:
            moves[move](event, now)
        except NotPossibleError as error:
            raise RefusedError(409, str(error)) from error
        return announcement.shown(event)

    def interrupt(self, event_id: str, body: Body) -> dict[str, Any]:
        """Pause the machines of a Started event for `seconds`. Raises RefusedError."""
        only(body, {"seconds"})
        now = self._clock.now()
        self._azure.settle(now)
        event = self._find(event_id)
        try:
            self._azure.interrupt(event, number(body, "seconds", default=max(1, event.duration_seconds), least=0), now)
        except NotPossibleError as error:
            raise RefusedError(409, str(error)) from error
        return announcement.shown(event)

    def machines(self) -> list[dict[str, Any]]:
        """Return every machine, and whether it exists and runs."""
        now = self._clock.now()
        self._azure.settle(now)
        return [
            {
                "id": machine.id,
                "name": machine.name,
                "set": in_set.name,
                "exists": self._azure.exists(machine, now),
                "paused_seconds": self._azure.pause_left(machine, now),
            }
            for in_set, machine in self._azure.machines.values()
        ]

    def add_fault(self, body: Body) -> list[dict[str, Any]]:
        """Add a fault to one machine or to all (`*`). Raises RefusedError."""
        only(body, {"vm", "fault", "count", "seconds", "delay_seconds", "method", "newest", "names", "status"})
        vm = text(body, "vm")
        if vm != "*" and vm not in self._azure.machines:
            raise RefusedError(400, f"vm: the fleet has no machine {vm!r}")
        count = optional_number(body, "count", least=1)
        if count is not None and count != int(count):
            raise RefusedError(400, "count: must be a whole number")
        status = body.get("status", 400)
        if status not in (400, 404):
            raise RefusedError(400, "status: must be 400 or 404")
        added = self._faults.add(
            one_of(body, "fault", tuple(STAGES)),
            self._azure.machines if vm == "*" else [vm],
            now=self._clock.now(),
            count=None if count is None else int(count),
            seconds=optional_number(body, "seconds", least=0),
            delay_seconds=optional_number(body, "delay_seconds", least=0),
            method=one_of(body, "method", ("GET", "POST")) if "method" in body else "",
            newest=text(body, "newest", default="2019-08-01"),
            names=body.get("names") is not False,
            status=status,
        )
        return [fault.shown() for fault in added]

    def move_clock(self, body: Body) -> dict[str, Any]:
        """Move the simulator's clock by `advance_seconds`, or to the RFC 3339 time `at`. Raises RefusedError."""
        only(body, {"advance_seconds", "at"})
        seconds = optional_number(body, "advance_seconds")
        if ("at" in body) == (seconds is not None):
            raise RefusedError(400, "say either advance_seconds or at")
        if seconds is not None:
            self._clock.advance(seconds)
        else:
            self._clock.set(_time(text(body, "at")))
        self._azure.settle(self._clock.now())
        return self._shown_clock()

    def _about_one_event(self, request: Request, path: str) -> Any:
        method, steps = request.method, path.split("/")
        if steps[:3] == ["", "control", "events"] and len(steps) == 4 and method == "GET":
            return self.event(steps[3])
        if steps[:3] == ["", "control", "events"] and len(steps) == 5 and method == "POST":
            if steps[4] == "impact":
                return self.interrupt(steps[3], _body(request) if request.body else {})
            return self.move_event(steps[3], steps[4])
        raise RefusedError(404, f"there is no control call {method} {path}")

    def _changes(self, request: Request) -> dict[str, Any]:
        """Return the events of every set that changed after a given change number. A simulated fleet makes this call
        once for all its machines.
        """
        asked = dict(request.query)
        only(asked, {"since"})
        if not asked.get("since", "0").isdecimal():
            raise RefusedError(400, "since: expected a number")
        self._azure.settle(self._clock.now())
        number, changed = self._azure.changed_since(int(asked.get("since", "0")))
        newest = VERSIONS[max(VERSIONS)]
        return {
            "next": number,
            "sets": [
                {"set": one.key, "Events": rendered_events(self._azure.open_events(one), newest)} for one in changed
            ],
        }

    def _find(self, event_id: str) -> Event:
        event = self._azure.find(event_id)
        if event is None:
            raise RefusedError(404, f"there is no event {event_id}")
        return event

    def _shown_log(self, request: Request) -> list[dict[str, Any]]:
        asked = dict(request.query)
        only(asked, {"since", "method", "vm", "limit"})
        for key in ("since", "limit"):
            if not asked.get(key, "0").isdecimal():
                raise RefusedError(400, f"{key}: expected a number")
        return self._log.entries(
            since=int(asked.get("since", "0")),
            method=asked.get("method", "").upper(),
            vm=asked.get("vm", ""),
            limit=int(asked.get("limit", "0")),
        )

    def _shown_clock(self) -> dict[str, Any]:
        return {"now": rfc3339(self._clock.now())}

    def play_redis(self, body: Body) -> dict[str, Any]:
        """Start a simulated maintenance on the server of `cache`. Raises RefusedError."""
        speed = number(body, "speed", default=1.0, least=0.001)
        return self.maintenances.begin(self._cache(body), one_of(body, "play", tuple(PLAYS)), speed)

    def _cache(self, body: Body) -> Cache:
        try:
            cache = self._azure.fleet.find_cache(text(body, "cache"))
        except FleetError as error:
            raise RefusedError(400, f"cache: {error}") from error
        if not cache.server:
            raise RefusedError(409, f"cache {cache.host} has no server: name one in the fleet file or with --redis-url")
        return cache

    async def _certificates(self, *, whole: bool) -> Response:
        now = self._clock.now()
        try:
            if whole:
                return Response(200, encoded(await asyncio.to_thread(self._authority.shown, now)))
            der = await asyncio.to_thread(self._authority.intermediate, now)
        except UnavailableError as error:
            return _refusal(RefusedError(503, str(error)))
        return Response(200, der, "application/pkix-cert")

    async def _redis(self, request: Request) -> Response:
        try:
            body = _body(request)
            only(body, {"cache", "raw", "play", "speed"})
            if ("raw" in body) == ("play" in body):
                raise RefusedError(400, "say either raw or play")
            if "play" in body:
                return Response(200, encoded(self.play_redis(body)))
            heard_by = await redis_events.publish(self._cache(body).server, text(body, "raw"))
        except redis_events.NotPublishedError as error:
            return _refusal(RefusedError(502, str(error)))
        except RefusedError as refusal:
            return _refusal(refusal)
        return Response(200, encoded({"subscribers": heard_by}))


def _refusal(refusal: RefusedError) -> Response:
    return Response(refusal.status, encoded({"error": str(refusal)}))


def _body(request: Request) -> Body:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedError(400, "the body must be an object")
    return body


def _time(value: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except ValueError as error:
        raise RefusedError(400, f"at: {error}") from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
