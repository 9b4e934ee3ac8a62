"""The simulator in a thread of the test's own process, with a clock that stands still, and a plain HTTP client."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from azure_simulator import fleet, server
from azure_simulator.clock import FrozenClock

VERSION = "2020-07-01"
EVENTS = f"/metadata/scheduledevents?api-version={VERSION}"
METADATA = {"Metadata": "true"}
START = datetime(2022, 4, 11, 22, 11, 58, tzinfo=UTC)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str, method: str, target: str, *, headers: dict[str, str] | None = None, body: Any = None, timeout: float = 10
) -> Answer:
    """One request on a connection of its own. `body` is sent as it is when it is bytes, else as JSON."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=timeout)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, where.path + target, body=data, headers=headers or {})
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, answer.read())
    finally:
        connection.close()


class Simulated:
    """A running simulator and its clock, as a test sees them."""

    def __init__(self, running: server.Server, clock: FrozenClock) -> None:
        self.url = running.url
        self.wire_server_url = running.wire_server_url
        self.clock = clock

    def get(self, vm: str, target: str = EVENTS, headers: dict[str, str] | None = None) -> Answer:
        return ask(f"{self.url}/vm/{vm}", "GET", target, headers=METADATA if headers is None else headers)

    def document(self, vm: str, version: str = VERSION) -> Any:
        answer = self.get(vm, f"/metadata/scheduledevents?api-version={version}")
        assert answer.status == 200
        return answer.json

    def approve(self, vm: str, *event_ids: str) -> int:
        payload = {"StartRequests": [{"EventId": event_id} for event_id in event_ids]}
        return ask(f"{self.url}/vm/{vm}", "POST", EVENTS, headers=METADATA, body=payload).status

    def control(self, method: str, call: str, body: Any = None) -> Answer:
        return ask(self.url, method, f"/control/{call}", body=body)

    def create(self, **fields: Any) -> str:
        answer = self.control("POST", "events", fields)
        assert answer.status == 200, answer.body
        return str(answer.json["EventId"])

    def event(self, event_id: str) -> Any:
        return self.control("GET", f"events/{event_id}").json


def west_norway() -> dict[str, Any]:
    """Return the two machines of Microsoft's sample, with a cloud service and a scale set."""
    sets = [
        ("availability_set", "west", ["WestNO_0", "WestNO_1"]),
        ("cloud_service", "legacy", ["FrontEnd_IN_0"]),
        ("scale_set", "workers", ["workers_0"]),
    ]
    return {
        "sets": [_set(kind, name, machines) for kind, name, machines in sets],
        "caches": [{"host": "west.redis.cache.windows.net", "tier": "Standard"}],
    }


def _set(kind: str, name: str, machines: list[str]) -> dict[str, Any]:
    place = {"subscription": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90", "resource_group": "west"}
    same = {"update_domain": 0, "location": "norwaywest", "tags": {"drydock:service": "west"}}
    members = [
        {"id": machine, "name": machine, "vm_id": f"{machine}-vm-id", "fault_domain": number, **same}
        for number, machine in enumerate(machines)
    ]
    return {**place, "kind": kind, "name": name, "machines": members}


@contextlib.contextmanager
def simulated(content: Any = None, *, as_vm: str = "", wire_server: bool = False) -> Iterator[Simulated]:
    """Serve `content` (else `west_norway`) from a thread until the block is left."""
    clock = FrozenClock(START)
    loaded = fleet.parse(west_norway() if content is None else content)
    starting = server.start(loaded, clock=clock, as_vm=as_vm, wire_server=("127.0.0.1", 0) if wire_server else None)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            running = asyncio.run_coroutine_threadsafe(starting.__aenter__(), loop).result(10)
            try:
                yield Simulated(running, clock)
            finally:
                asyncio.run_coroutine_threadsafe(starting.__aexit__(None, None, None), loop).result(10)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
