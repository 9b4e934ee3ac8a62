"""Simulator as a child process for tests, with the control calls as methods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

_AGENTS = Path(__file__).resolve().parents[1]
# The simulator needs a newer Python than the agent, whose tests run on the oldest supported one.
_PYTHON = os.environ.get("AZURE_SIMULATOR_PYTHON") or sys.executable
_CALL_SECONDS = 10
# Do not use a proxy from the environment for loopback addresses.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ControlError(Exception):
    """A control call was refused. `status` is the HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status


class Events:
    """The control calls for events (`/control/events`) of a running simulator."""

    def __init__(self, simulator: RunningSimulator) -> None:
        self._simulator = simulator

    def create(self, **fields: Any) -> str:
        """Announce an event. `set` and `type` are required; all fields are those of the control call. Return the
        EventId.
        """
        answer = self._simulator.call("POST", "/control/events", fields)
        return str(answer["EventId"])

    def create_all(self, events: Sequence[Mapping[str, Any]], *, within_seconds: float = 0) -> list[str]:
        """Announce several events with one call, spread over `within_seconds`. Return the EventIds."""
        body = {"events": list(events), "within_seconds": within_seconds}
        made: list[str] = self._simulator.call("POST", "/control/events", body)["EventIds"]
        return made

    def start(self, event_id: str) -> dict[str, Any]:
        return self._move(event_id, "start")

    def complete(self, event_id: str) -> dict[str, Any]:
        return self._move(event_id, "complete")

    def cancel(self, event_id: str) -> dict[str, Any]:
        return self._move(event_id, "cancel")

    def interrupt(self, event_id: str, seconds: float) -> dict[str, Any]:
        """Pause the machines of a Started event for `seconds`. Return the event."""
        answer: dict[str, Any] = self._simulator.call(
            "POST", f"/control/events/{event_id}/impact", {"seconds": seconds}
        )
        return answer

    def get(self, event_id: str) -> dict[str, Any]:
        """Return one event with its times and approvals."""
        answer: dict[str, Any] = self._simulator.call("GET", f"/control/events/{event_id}")
        return answer

    def all(self) -> list[dict[str, Any]]:
        """Return all events including ended ones, oldest first."""
        answer: list[dict[str, Any]] = self._simulator.call("GET", "/control/events")
        return answer

    def _move(self, event_id: str, move: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._simulator.call("POST", f"/control/events/{event_id}/{move}")
        return answer


class RunningSimulator:
    """Context manager that runs `python -m azure_simulator` as a child process on a free port.

    `fleet` is the path of a fleet file, or its content. The child process always ends with this process.
    """

    def __init__(
        self,
        fleet: Path | Mapping[str, Any],
        *,
        as_vm: str = "",
        story: float = 0,
        redis_url: str = "",
        port: int = 0,
        first_call_seconds: float = 0,
        most_a_second: int = 0,
    ) -> None:
        self._fleet = fleet
        self._options: list[str] = ["--listen", f"127.0.0.1:{port}", "--parent", str(os.getpid())]
        self._options += ["--as-vm", as_vm] if as_vm else []
        self._options += ["--first-call", str(first_call_seconds)] if first_call_seconds else []
        self._options += ["--most-a-second", str(most_a_second)] if most_a_second else []
        self._options += ["--story", str(story)] if story else []
        self._options += ["--redis-url", redis_url] if redis_url else []
        self._child: subprocess.Popen[str]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.url = ""
        self.events = Events(self)

    def __enter__(self) -> RunningSimulator:
        path = os.environ.get("PYTHONPATH", "")
        self._child = subprocess.Popen(
            [_PYTHON, "-m", "azure_simulator", "--fleet", str(self._fleet_file()), *self._options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{_AGENTS}{os.pathsep}{path}" if path else str(_AGENTS)},
        )
        first_line = self._stdout().readline().strip()
        if not first_line.startswith("listening on "):
            self.__exit__(None, None, None)
            raise RuntimeError(f"the simulator did not start; it said {first_line!r} and why on its standard error")
        self.url = first_line.removeprefix("listening on ")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._stdout().close()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._child.pid

    def vm_url(self, vm: str) -> str:
        """Return the address that the agent of this machine uses instead of `http://169.254.169.254`."""
        return f"{self.url}/vm/{vm}"

    def fault(self, vm: str, fault: str, **fields: Any) -> list[dict[str, Any]]:
        """Add a fault to a machine, or to all machines (`*`). Optional fields: `count`, `seconds`, `delay_seconds`,
        `method`.
        """
        answer: list[dict[str, Any]] = self.call("POST", "/control/faults", {"vm": vm, "fault": fault, **fields})
        return answer

    def clear_faults(self) -> None:
        self.call("DELETE", "/control/faults")

    def log(self, **query: str | int) -> list[dict[str, Any]]:
        """Return requests to the metadata service, newest last. Optional filters: `since`, `method`, `vm`, `limit`."""
        answer: list[dict[str, Any]] = self.call("GET", f"/control/log?{urllib.parse.urlencode(query)}")
        return answer

    def advance(self, seconds: float) -> None:
        """Move the simulator's clock forward by `seconds`."""
        self.call("POST", "/control/clock", {"advance_seconds": seconds})

    def story(self, story: str, **fields: Any) -> dict[str, Any]:
        """Start a story. The result contains the `EventId`."""
        answer: dict[str, Any] = self.call("POST", "/control/stories", {"story": story, **fields})
        return answer

    def redis(self, cache: str, raw: str) -> int:
        """Publish one line on the channel of a cache. Return the number of subscribers that received it."""
        return int(self.call("POST", "/control/redis", {"cache": cache, "raw": raw})["subscribers"])

    def play(self, cache: str, play: str, speed: float = 1.0) -> float:
        """Start a simulated maintenance on the server of a cache. Return the duration in seconds."""
        body = {"cache": cache, "play": play, "speed": speed}
        return float(self.call("POST", "/control/redis", body)["seconds"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make any control call and return the decoded JSON. Raises ControlError."""
        data = None if body is None else json.dumps(body).encode()
        # The address is the one that our own child printed.
        request = urllib.request.Request(self.url + path, data=data, method=method)  # noqa: S310
        try:
            with _opener.open(request, timeout=_CALL_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(error.code, error.read().decode("utf-8", "replace")) from error

    def _stdout(self) -> IO[str]:
        if self._child.stdout is None:
            raise RuntimeError("the child was started without a pipe")
        return self._child.stdout

    def _fleet_file(self) -> Path:
        if isinstance(self._fleet, Path):
            return self._fleet
        self._folder = tempfile.TemporaryDirectory(prefix="fleet-")
        path = Path(self._folder.name) / "fleet.json"
        path.write_text(json.dumps(self._fleet), encoding="utf-8")
        return path
