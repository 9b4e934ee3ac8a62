"""From an announcement at Azure to a webhook that has it, in the whole demo: idle, and in a storm of a thousand.

The wait for grouping (`NOTIFICATION_GROUP_WAIT_SECONDS`, two seconds by default) is part of each figure. MESSAGE_ROUNDS
is the number of single announcements.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

import requests

from bench.ring import Demo, start, until
from bench.stage import Stage
from bench.table import Line

ROUNDS = int(os.environ.get("MESSAGE_ROUNDS", "20"))
STORM = 1000
# A storm's messages are watched for so long after its last announcement.
WATCHED_SECONDS = 130


@dataclass
class Heard:
    """The receiver's posts, with their times."""

    posts: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def first(self, event_id: str) -> float | None:
        """Return when this event was first named."""
        return next((at for at, body in list(self.posts) if event_id in json.dumps(body).upper()), None)


@contextmanager
def receiver() -> Iterator[tuple[str, Heard]]:
    """A receiver of webhooks on the loopback, and what it has heard."""
    heard = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            heard.posts.append((time.time(), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", heard
    finally:
        server.shutdown()


def measure(stage: Stage) -> list[Line]:
    demo = start(stage)
    with receiver() as (url, heard):
        _listen(demo, url)
        machines = cycle(_machines(demo))
        idle = [_round(demo, heard, next(machines)) for _ in range(ROUNDS)]
        lines = [_line("announced at Azure → at the webhook, idle", idle)]
        return [*lines, *_storm(demo, heard, machines)]


def _listen(demo: Demo, url: str) -> None:
    headers = {"Authorization": f"Bearer {demo.credentials['admin']['token']}"}
    channel = {"name": "measured", "kind": "webhook", "url": url}
    said = requests.post(f"{demo.url}/api/v1/channels/", json=channel, headers=headers, timeout=10)
    said.raise_for_status()
    route = {"name": "measured", "channel": said.json()["id"], "moments": ["event.first_seen"]}
    requests.post(f"{demo.url}/api/v1/routes/", json=route, headers=headers, timeout=10).raise_for_status()


def _machines(demo: Demo) -> list[tuple[str, str]]:
    """(set, machine) of all sets of several machines."""
    sets = demo.api("sets/?page_size=500").json()["results"]
    return [
        (one["name"], machine["resource_name"])
        for one in sets
        if one["kind"] == "availability_set"
        for machine in one["machines"]
    ]


def _round(demo: Demo, heard: Heard, place: tuple[str, str]) -> float:
    """Seconds from one announcement to the webhook; then it is taken back."""
    name, machine = place
    began = time.time()
    event_id = demo.announce(set=name, resources=[machine])
    took = float(until(lambda: heard.first(event_id), seconds=90)) - began
    demo.withdraw(event_id)
    # A channel that sent much within a minute groups its messages, so rounds are kept apart.
    time.sleep(20)
    return took


def _storm(demo: Demo, heard: Heard, machines: Iterator[tuple[str, str]]) -> list[Line]:
    time.sleep(60)
    before = len(heard.posts)
    announced: dict[str, float] = {}
    for _ in range(STORM):
        name, machine = next(machines)
        at = time.time()
        announced[demo.announce(set=name, resources=[machine], duration_seconds=600)] = at
    until(lambda: all(heard.first(one) for one in announced), seconds=WATCHED_SECONDS)
    took = sorted(float(heard.first(one) or 0) - at for one, at in announced.items())
    posts = heard.posts[before:]
    minutes = max((posts[-1][0] - min(announced.values())) / 60, 1)
    return [
        _line(f"the same, {STORM} announced together", took),
        Line("posts in that storm", f"{len(posts)}", f"{len(posts) / minutes:.1f} a minute"),
    ]


def quantile(values: list[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _line(what: str, times: list[float]) -> Line:
    return Line(what, f"{quantile(times, 0.5):.2f} s", f"p99 {quantile(times, 0.99):.2f} s, of {len(times)}")
