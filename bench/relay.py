"""From the click to `StartRequests` at Azure: idle, with a thousand machines that hold their calls, without Redis.

The click is the page's own form, sent as a browser sends it. Each event lies in a set in which nothing else is under
way. RELAY_ROUNDS says how many clicks each measurement has.
"""

from __future__ import annotations

import os
import re
import signal
import time
from itertools import cycle
from pathlib import Path
from statistics import median

import requests

from bench.ring import Demo, start, until
from bench.stage import Stage
from bench.table import Line, at_most

ROUNDS = int(os.environ.get("RELAY_ROUNDS", "25"))
WITHOUT_REDIS = 5
MACHINES = 1000


class Clicker:
    """A person who is logged in, and the sets' events one after the other."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.places = cycle(self._known_places())
        self.before: dict[str, str] = {}
        self.session = requests.Session()
        address = f"{demo.url}/accounts/login/"
        self.session.get(address, timeout=10)
        person = demo.credentials["operator"]
        form = {"login": person["username"], "password": person["password"], "csrfmiddlewaretoken": self._csrf()}
        self.session.post(address, data=form, headers={"Referer": address}, timeout=10).raise_for_status()

    def _known_places(self) -> list[tuple[str, str, int]]:
        """(set, one machine of it, how many it has) for each set of several machines."""
        found = []
        for one in self.demo.api("sets/?page_size=500").json()["results"]:
            names = sorted(machine["resource_name"] for machine in one["machines"])
            if len(names) > 1 and one["kind"] != "provisional":
                found.append((one["name"], names[-1], len(names)))
        return found

    def _csrf(self) -> str:
        return next(cookie.value or "" for cookie in self.session.cookies if "csrf" in cookie.name.lower())

    def round(self) -> float:
        """Seconds from one click to its `StartRequests`."""
        name, machine, size = next(self.places)
        if name in self.before:
            until(lambda: self._status(self.before[name]) == "ENDED", seconds=60)
        body = {"set": name, "type": "Freeze", "resources": [machine], "notice_seconds": 900, "duration_seconds": 1}
        said = requests.post(f"{self.demo.simulator}/control/events", json=body, timeout=5)
        said.raise_for_status()
        event_id = self.before[name] = str(said.json()["EventId"]).upper()
        until(lambda: self._seen(event_id) >= size)
        address = f"{self.demo.url}/events/{event_id}/"
        page = self.session.get(address, timeout=10).text
        version = re.search(r'name="expected_version" value="(\d+)"', page)
        form = {
            "csrfmiddlewaretoken": self._csrf(),
            "comment": "measured",
            "when": "now",
            "expected_version": version[1] if version else "",
        }
        began = time.time()
        answer = self.session.post(f"{address}approve/", data=form, headers={"Referer": address}, timeout=20)
        answer.raise_for_status()
        return float(until(lambda: self.demo.started_at(event_id))) - began

    def _status(self, event_id: str) -> str:
        return str(self.demo.api(f"events/{event_id}/").json().get("status", ""))

    def _seen(self, event_id: str) -> int:
        said = self.demo.api(f"events/{event_id}/")
        return len(said.json()["sightings"]) if said.status_code == 200 else 0


def measure(stage: Stage) -> list[Line]:
    demo = start(stage)
    clicker = Clicker(demo)
    clicker.round()
    lines = [_line("click → StartRequests, idle", [clicker.round() for _ in range(ROUNDS)], 300, "click-idle")]
    headers = {"Authorization": f"Bearer {demo.credentials['admin']['token']}"}
    answer = requests.post(f"{demo.url}/api/v1/join-tokens/", json={"comment": "measured"}, headers=headers, timeout=10)
    answer.raise_for_status()
    others = stage.start(["-m", "bench.load_fleet", demo.url, answer.json()["token"], str(MACHINES)])
    until(lambda: "hold their calls" in stage.said(others) or others.poll() is not None, seconds=180)
    time.sleep(2)
    lines.append(
        _line(f"the same, {MACHINES} more machines", [clicker.round() for _ in range(ROUNDS)], 1000, "click-crowd")
    )
    others.terminate()
    frozen = _freeze_redis(stage)
    try:
        lines.append(
            _line(
                "the same, Redis frozen", [clicker.round() for _ in range(WITHOUT_REDIS)], 10_000, "click-without-redis"
            )
        )
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    return lines


def _freeze_redis(stage: Stage) -> list[int]:
    """Stop every Valkey of this stage where it is; their process ids."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            # It says nothing of the stage but where it runs: its folder.
            own = (path / "cwd").readlink().is_relative_to(stage.folder.resolve())
            valkey = own and b"valkey" in (path / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if valkey:
            found.append(int(path.name))
    if not found:
        raise RuntimeError("No Valkey was found that could be frozen.")
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


def _line(what: str, times: list[float], most: int, key: str) -> Line:
    ordered = sorted(times)
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)] * 1000
    print(f"{what}: {len(times)} rounds", flush=True)
    note = f"p99 of {len(times)}: {p99:.0f} ms, worst {ordered[-1] * 1000:.0f} ms"
    return Line(what, f"{median(times) * 1000:.0f} ms", note, key=key, ratio=p99, aim=at_most(most))
