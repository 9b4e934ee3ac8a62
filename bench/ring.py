"""Once round the ring, in the whole demo: from Azure to the API and to a browser, and from a click back to Azure.

Every part is real but Azure: one agent process per machine, gateway, Celery worker and beat, and chromium where there
is one. Times are taken outside, by one clock.
"""

from __future__ import annotations

import functools
import json
import os
import select
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import requests
from playwright.sync_api import Page, sync_playwright

from bench.stage import Stage, free_port
from bench.table import Line, at_most

ROUNDS = 7
STREAMS, MANY_ROUNDS = 200, 20
AGENT_SECONDS = 15.0
PATIENCE = 20.0


@dataclass(slots=True)
class Demo:
    """The running demo: where it answers and who may sign in."""

    url: str
    simulator: str
    credentials: dict[str, Any]

    def announce(self, **fields: Any) -> str:
        """Azure announces an event to the set `web`; its EventId."""
        body = {"set": "web", "type": "Freeze", "resources": ["web-vm3"], "notice_seconds": 900, "duration_seconds": 1}
        said = requests.post(f"{self.simulator}/control/events", json=body | fields, timeout=5)
        said.raise_for_status()
        return str(said.json()["EventId"]).upper()

    def withdraw(self, event_id: str) -> None:
        """Azure takes it back, if it has not begun."""
        requests.post(f"{self.simulator}/control/events/{event_id}/cancel", timeout=5)

    def api(self, path: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.credentials['operator']['token']}"}
        return requests.get(f"{self.url}/api/v1/{path}", headers=headers, timeout=5)

    def quiet(self) -> bool:
        """Whether no event is open."""
        return not self.api("events/?status=SCHEDULED&status=STARTED").json()["results"]

    def started_at(self, event_id: str) -> float | None:
        """Return when an agent posted `StartRequests` for it, in seconds since 1970."""
        for request in requests.get(f"{self.simulator}/control/log", timeout=10).json():
            if request["method"] == "POST" and event_id in request["body"].upper():
                return datetime.fromisoformat(request["time"]).timestamp()
        return None


def measure(stage: Stage) -> list[Line]:
    demo = start(stage)
    lines = [in_milliseconds("change at Azure → row in the API", [to_api(demo) for _ in range(ROUNDS)], 2000, "to-api")]
    if shutil.which("chromium") is None:
        times = [by_api(demo) for _ in range(ROUNDS)]
        lines.append(Line("change at Azure → in the browser", "not measured", "no chromium here"))
        lines.append(in_milliseconds("approval by the API → StartRequests", times, 1000, "api-to-azure"))
    else:
        lines += in_a_browser(demo)
    return [*lines, *by_rule(demo), *agents(stage)]


def in_milliseconds(what: str, times: list[float], most: float, key: str) -> Line:
    worst, middle = max(times) * 1000, median(times) * 1000
    return Line(
        what, f"{middle:.0f} ms", f"worst of {len(times)}: {worst:.0f} ms", key=key, ratio=middle, aim=at_most(most)
    )


def start(stage: Stage) -> Demo:
    """The demo without its story, in the stage's folder; returns once every machine is live."""
    port, simulator = free_port(), free_port()
    folder = stage.folder / "demo"
    child = stage.start(
        ["manage.py", "demo"],
        PORT=str(port),
        SIMULATOR_PORT=str(simulator),
        DEMO_DIR=str(folder),
        DEMO_STORY="off",
        BASE_URL=f"http://127.0.0.1:{port}",
    )

    def ready() -> bool:
        if child.poll() is not None:
            raise RuntimeError(f"the demo ended: {stage.said(child)}")
        # It says how to sign in once everything answers.
        return f"http://127.0.0.1:{port}" in stage.said(child)

    until(ready, seconds=120)
    credentials = json.loads((folder / "credentials.json").read_text())
    # The first poll of each agent is past, and the machine is at rest.
    time.sleep(3)
    return Demo(credentials["url"], credentials["simulator_url"], credentials)


def until(question: Callable[[], Any], *, seconds: float = PATIENCE) -> Any:
    """The first answer that is true. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not (found := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} seconds")
        time.sleep(0.01)
    return found


def to_api(demo: Demo) -> float:
    began = time.time()
    event_id = demo.announce()
    until(lambda: demo.api(f"events/{event_id}/").status_code == 200)
    took = time.time() - began
    demo.withdraw(event_id)
    return took


def by_api(demo: Demo) -> float:
    event_id = seen_by_all(demo)
    headers = {"Authorization": f"Bearer {demo.credentials['operator']['token']}"}
    began = time.time()
    url = f"{demo.url}/api/v1/events/{event_id}/approvals/"
    requests.post(url, json={"comment": "measured"}, headers=headers, timeout=10).raise_for_status()
    return float(until(lambda: demo.started_at(event_id))) - began


def by_rule(demo: Demo) -> list[Line]:
    """Measure a rule that is created and enabled, without any click. Agents poll once a second, which is in the first
    line and not in the second.
    """
    headers = {"Authorization": f"Bearer {demo.credentials['admin']['token']}"}
    body = {"name": "Measured", "reason": "It is measured.", "action": "approve_now", "event_types": ["Freeze"]}
    answer = requests.post(f"{demo.url}/api/v1/rules/", json={**body, "enabled": True}, headers=headers, timeout=10)
    answer.raise_for_status()
    announced, reported = [], []
    for _ in range(2 * ROUNDS):
        # An event of the set that is under way would make the next one wait.
        until(demo.quiet, seconds=120)
        began = time.time()
        event_id = demo.announce(started_seconds=1)
        started = float(until(functools.partial(demo.started_at, event_id)))
        announced.append(started - began)
        event = demo.api(f"events/{event_id}/").json()
        reported.append(started - datetime.fromisoformat(event["first_seen_at"]).timestamp())
    requests.delete(f"{demo.url}/api/v1/rules/{answer.json()['id']}/", headers=headers, timeout=10).raise_for_status()
    return [
        in_milliseconds("change at Azure → StartRequests by a rule", announced, 3000, "rule"),
        in_milliseconds("rule: first poll that lists it → StartRequests", reported, 2000, "rule-seen"),
    ]


def seen_by_all(demo: Demo) -> str:
    """A new event that every machine of the set has listed."""
    event_id = demo.announce()

    def listed() -> bool:
        said = demo.api(f"events/{event_id}/")
        return said.status_code == 200 and len(said.json()["sightings"]) >= 6

    until(listed)
    return event_id


class Listeners:
    """Streams that are held open and read, as scripts do; `with Listeners(demo, 200)`."""

    def __init__(self, demo: Demo, count: int) -> None:
        self.address = urlsplit(demo.url)
        self.token = demo.credentials["operator"]["token"]
        self.count = count
        self.streams: list[socket.socket] = []

    def __enter__(self) -> Listeners:
        call = (
            f"GET /api/v1/stream HTTP/1.1\r\nHost: {self.address.netloc}\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        )
        for _ in range(self.count):
            stream = socket.create_connection((self.address.hostname or "", self.address.port or 80), timeout=PATIENCE)
            self.streams.append(stream)
            stream.sendall(call.encode())
            if b" 200 " not in stream.recv(4096).split(b"\r\n", 1)[0]:
                raise RuntimeError("a stream was refused")
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self.streams:
            stream.close()

    def heard(self) -> int:
        """Return how many streams have data to read."""
        return len(select.select(self.streams, [], [], 0)[0])


def in_a_browser(demo: Demo) -> list[Line]:
    with sync_playwright() as playwright:
        # Debian's chromium refuses its sandbox to root.
        arguments = ["--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page()
        page.goto(demo.url)
        page.fill("input[name=login]", demo.credentials["operator"]["username"])
        page.fill("input[name=password]", demo.credentials["operator"]["password"])
        page.click("button[type=submit]")
        painted = [to_browser(demo, page) for _ in range(ROUNDS)]
        with Listeners(demo, STREAMS) as listeners:
            crowded = [to_browser(demo, page) for _ in range(MANY_ROUNDS)]
            heard = listeners.heard()
        clicked = [click(demo, page) for _ in range(ROUNDS)]
        browser.close()
    return [
        in_milliseconds("change at Azure → in the browser", painted, 2500, "to-browser"),
        in_milliseconds(f"the same with {heard} open streams", crowded, 5000, "to-browser-crowded"),
        in_milliseconds("click → StartRequests", clicked, 1000, "browser-to-azure"),
    ]


def to_browser(demo: Demo, page: Page) -> float:
    page.goto(demo.url)
    # The stream is open by then.
    time.sleep(1)
    began = time.time()
    event_id = demo.announce()
    page.wait_for_selector(f"[data-key='{event_id}']", timeout=PATIENCE * 1000)
    took = time.time() - began
    demo.withdraw(event_id)
    return took


def click(demo: Demo, page: Page) -> float:
    # While an event of the set is under way, the next one cannot be approved.
    until(demo.quiet, seconds=120)
    event_id = seen_by_all(demo)
    page.goto(f"{demo.url}/events/{event_id}/")
    page.wait_for_selector("#approve-now:not([disabled])", timeout=PATIENCE * 1000)
    time.sleep(0.5)
    began = time.time()
    page.click("#approve-now")
    return float(until(lambda: demo.started_at(event_id))) - began


def agents(stage: Stage) -> list[Line]:
    """Memory and processor of the agents, over some seconds in which nothing happens at Azure."""
    found = [path for path in Path("/proc").glob("[0-9]*") if is_agent(path, stage)]
    before = {path: seconds_used(path) for path in found}
    time.sleep(AGENT_SECONDS)
    shares = [100 * (seconds_used(path) - before[path]) / AGENT_SECONDS for path in found]
    memory = [kilobytes(path, "VmRSS") / 1024 for path in found]
    return [
        Line("agent, resident memory", f"{median(memory):.1f} MB", f"{len(found)} agents; node_exporter 20.9 MB"),
        Line("agent, processor", f"{median(shares):.2f} %", "of one core, at one poll a second"),
    ]


def is_agent(path: Path, stage: Stage) -> bool:
    with suppress(OSError):
        own = str(stage.folder).encode() in (path / "environ").read_bytes()
        return own and b"drydock_agent\0run" in (path / "cmdline").read_bytes()
    return False


def seconds_used(path: Path) -> float:
    fields = (path / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kilobytes(path: Path, name: str) -> int:
    for line in (path / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
