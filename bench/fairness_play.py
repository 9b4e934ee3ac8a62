"""One play of `bench.fairness`: gateways of their own, machines that behave, and one that sends as much as it may.

Everything is measured outside: an answer by its client, an announcement by a stream, a notification by its receiver.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import requests
from drydock_agent import wire

from bench.messages import Heard
from bench.stage import ROOT, Stage, stop

CONTROL_SECONDS = 5.0
ATTACK_SECONDS = 10.0
# A call is given up after this many seconds, and counts as this.
PATIENCE = 40.0
# This many machines announce one after the other, each in its own set; the announcements are withdrawn again.
ANNOUNCERS = 20
Report = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class Machine:
    """One pretended agent, with the ports of the gateways that it may call."""

    credential: str
    name: str
    ports: Sequence[int] = ()
    spool: str = field(default_factory=lambda: str(uuid4()))
    seq: int = 0
    calls: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, reports: Sequence[Report]) -> tuple[str, bytes]:
        """The address of the next gateway, and the body of one delivery."""
        now = datetime.now(UTC).isoformat()
        with self.lock:
            self.calls += 1
            port = self.ports[self.calls % len(self.ports)]
            numbered = []
            for kind, data in reports:
                self.seq += 1
                numbered.append({"seq": self.seq, "kind": kind, "at": now, "data": data})
        batch = {"spool": self.spool, "sent_at": now, "last_poll_at": now, "held": [], "reports": numbered}
        return f"http://127.0.0.1:{port}{wire.REPORTS_PATH}", json.dumps(batch).encode()

    def send(self, session: requests.Session, reports: Sequence[Report]) -> int:
        """The status of the answer; 0 where there was none in time."""
        address, body = self.request(reports)
        headers = {"Authorization": f"Bearer {self.credential}", "Content-Type": "application/json"}
        try:
            return session.post(address, data=body, headers=headers, timeout=PATIENCE).status_code
        except requests.RequestException:
            return 0


def document(events: Sequence[dict[str, Any]]) -> Report:
    """Return a report of a new document."""
    body = json.dumps({"DocumentIncarnation": time.time_ns() % 2**40, "Events": list(events), "of": str(uuid4())})
    return wire.DOCUMENT, {"body": body, "hash": hashlib.sha256(body.encode()).hexdigest(), "incarnation": 1}


def event(machine: str = "") -> dict[str, Any]:
    """Return a new event with the fewest fields that count."""
    if not machine:
        return {"EventId": str(uuid4()), "EventStatus": "Scheduled"}
    not_before = format_datetime(datetime.now(UTC) + timedelta(minutes=15), usegmt=True)
    return {
        "EventId": str(uuid4()).upper(),
        "EventStatus": "Scheduled",
        "EventType": "Freeze",
        "ResourceType": "VirtualMachine",
        "Resources": [machine],
        "NotBefore": not_before,
    }


@dataclass(frozen=True, slots=True)
class Attack:
    """The repeated delivery of one machine; with `burst`, this many deliveries and then none."""

    name: str
    delivery: Callable[[int], list[Report]]
    burst: int = 0


@dataclass(slots=True)
class Times:
    """Seconds that each of its kind took; `bad` are answers other than 200, by status (0: none in time)."""

    taken: list[float] = field(default_factory=list)
    bad: dict[int, int] = field(default_factory=dict)

    def note(self, seconds: float, status: int = 200) -> None:
        self.taken.append(seconds)
        if status != 200:
            self.bad[status] = self.bad.get(status, 0) + 1

    @property
    def p50(self) -> float:
        ordered = sorted(self.taken)
        return ordered[len(ordered) // 2] if ordered else 0.0

    @property
    def worst(self) -> float:
        return max(self.taken, default=0.0)


@dataclass(slots=True)
class Phase:
    """Measurements before an attack, or during it."""

    report: Times = field(default_factory=Times)
    receipt: Times = field(default_factory=Times)
    visible: Times = field(default_factory=Times)
    notified: Times = field(default_factory=Times)
    # Of the attacker: deliveries that were answered, and how.
    attacks: Times = field(default_factory=Times)


class Base:
    """A migrated database with machines, a person and a channel, copied for each play; its gateways end before that."""

    def __init__(self, stage: Stage, webhook: str, attackers: int) -> None:
        self.stage = stage
        stage.environment |= {"EGRESS_ALLOWLIST": "127.0.0.0/8"}
        # Events announced there cause notifications. Events announced to see when they are visible do not, or it would
        # be a storm.
        port = stage.granian("fleet.asgi:application", path="/healthz")
        join = stage.manage("create_join_token").strip()
        with requests.Session() as session:
            enrolled = [
                _enrol(session, port, join, name, home)
                for name, home in [
                    ("reporter", "quiet"),
                    ("receiver", "busy"),
                    *((f"seen{number}", f"seen-{number}") for number in range(ANNOUNCERS)),
                    *((f"told{number}", f"told-{number}") for number in range(2)),
                    *((f"attacker{number}", "told-attack") for number in range(attackers)),
                ]
            ]
        self.machines = {one.name: one for one in enrolled}
        stage.manage("create_person", "bench", "--group", "admin")
        self.token = stage.manage("create_token", "bench", "--scope=read", "--scope=admin").strip()
        headers = {"Authorization": f"Bearer {self.token}"}
        api = f"http://127.0.0.1:{port}/api/v1"
        said = requests.post(
            f"{api}/channels/", json={"name": "bench", "kind": "webhook", "url": webhook}, headers=headers, timeout=10
        )
        said.raise_for_status()
        # Those of a new installation tell every channel of everything.
        for known in requests.get(f"{api}/routes/", headers=headers, timeout=10).json()["results"]:
            address = f"{api}/routes/{known['id']}/"
            requests.patch(address, json={"enabled": False}, headers=headers, timeout=10).raise_for_status()
        route = {
            "name": "bench",
            "channel": said.json()["id"],
            "moments": ["event.first_seen"],
            "set_pattern": "told-*",
        }
        requests.post(f"{api}/routes/", json=route, headers=headers, timeout=10).raise_for_status()
        for child in stage.children:
            stop(child)

    @contextmanager
    def play(self, number: int, processes: int) -> Iterator[tuple[Stage, list[int]]]:
        """A copy of it, with worker, beat and so many gateways; their ports."""
        before, name = self.stage.database_url, f"drydock_bench_play_{uuid4().hex[:8]}"
        home = urlsplit(before)
        admin = home._replace(path="/postgres").geturl()
        with ExitStack() as stack:
            with psycopg.connect(admin, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name} TEMPLATE {home.path[1:]}".encode())
            stack.callback(_drop, admin, name)
            # What an earlier play has left in the queue of tasks is not for this one.
            redis = self.stage.environment["REDIS_URL"]
            there = {"DATABASE_URL": home._replace(path=f"/{name}").geturl(), "REDIS_URL": _numbered(redis, number)}
            folder = self.stage.folder / name
            folder.mkdir()
            made = Stage.upon(folder, {**self.stage.environment, **there}, stack)
            ports = [made.granian("fleet.asgi:application", path="/healthz") for _ in range(processes)]
            made.start([str(ROOT / "manage.py"), "worker"])
            made.start([str(ROOT / "manage.py"), "beat", "--", "--schedule", str(folder / "beat")])
            _until_routed(made.database_url)
            yield made, ports


def _enrol(session: requests.Session, port: int, join: str, name: str, home: str) -> Machine:
    body = {
        "join_token": join,
        "machine_id": str(uuid4()),
        "resource_name": name,
        "availability_set": f"availability_set:{home}",
    }
    said = session.post(f"http://127.0.0.1:{port}{wire.ENROL_PATH}", json=body, timeout=10)
    said.raise_for_status()
    return Machine(said.json()["credential"], name)


def _numbered(url: str, number: int) -> str:
    """Return the address of another of the sixteen databases of the same Redis server."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        # `geturl` would write it with one slash.
        return f"unix://{parts.path}?db={number % 16}"
    return parts._replace(path=f"/{number % 16}").geturl()


def _until_routed(url: str) -> None:
    """Wait for the first run of the router, which notifies of nothing before it."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute("SELECT 1 FROM fleet_cursor WHERE name = 'router'").fetchone():
            if time.monotonic() > deadline:
                raise RuntimeError("no process routes requests")
            time.sleep(0.1)


def _drop(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


class Play:
    """The machines of one play, each in a thread of its own."""

    def __init__(self, base: Base, ports: Sequence[int], heard: Heard, attacker: str) -> None:
        self.base, self.ports, self.heard = base, ports, heard
        self.machines = {name: Machine(one.credential, name, ports=tuple(ports)) for name, one in base.machines.items()}
        self.attacker = self.machines[attacker]
        self.control, self.attacked = Phase(), Phase()
        self.phase = self.control
        self.over = threading.Event()
        # What was announced last is still listened for.
        self.heard_all = threading.Event()
        self.seen: dict[str, float] = {}
        self.threads: list[threading.Thread] = []

    def run(self, attack: Attack) -> None:
        """Both phases; returns once everything was answered or given up."""
        stream = threading.Thread(target=self._listen, daemon=True)
        stream.start()
        with requests.Session() as session:
            # Once for nothing: statements are prepared, credentials known; and the router has begun to read.
            for one in self.machines.values():
                for _ in self.ports:
                    one.send(session, [document([])])
        time.sleep(3)
        victims = [self._report, self._receive, self._announce]
        self.threads = [threading.Thread(target=one, daemon=True) for one in victims]
        for thread in self.threads:
            thread.start()
        told = threading.Thread(target=self._notify, args=("told0", self.control), daemon=True)
        told.start()
        time.sleep(CONTROL_SECONDS)
        told.join(PATIENCE)
        self.phase = self.attacked
        begun = time.monotonic()
        calls = [
            threading.Thread(target=self._attack, args=(attack, begun + ATTACK_SECONDS), daemon=True)
            for _ in self.ports
        ]
        for thread in calls:
            thread.start()
        if attack.burst:
            for thread in calls:
                thread.join(PATIENCE)
        else:
            time.sleep(2)
        self._notify("told1", self.attacked)
        time.sleep(max(0.0, begun + ATTACK_SECONDS - time.monotonic()))
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE + 5)
        self.heard_all.set()

    def _timed(self, times: str, name: str, pause: float, reports: Callable[[], list[Report]]) -> None:
        with requests.Session() as session:
            while not self.over.is_set():
                phase, began = self.phase, time.monotonic()
                status = self.machines[name].send(session, reports())
                getattr(phase, times).note(time.monotonic() - began, status)
                self.over.wait(pause)

    def _report(self) -> None:
        self._timed("report", "reporter", 0.1, lambda: [document([])])

    def _receive(self) -> None:
        # For an unknown order: it is answered as any other, and has nothing to wait for.
        def receipt() -> list[Report]:
            data = {"order_id": str(uuid4()), "event_id": str(uuid4()), "outcome": wire.ANSWERED, "azure_status": 200}
            return [(wire.RECEIPT, data)]

        self._timed("receipt", "receiver", 0.3, receipt)

    def _announce(self) -> None:
        with requests.Session() as session:
            for number in itertools.count():
                if self.over.is_set():
                    return
                machine = self.machines[f"seen{number % ANNOUNCERS}"]
                phase, began, one = self.phase, time.monotonic(), event(machine.name)
                status = machine.send(session, [document([one])])
                while one["EventId"] not in self.seen and time.monotonic() < began + PATIENCE:
                    time.sleep(0.005)
                phase.visible.note(self.seen.get(one["EventId"], began + PATIENCE) - began, status)
                machine.send(session, [document([])])
                self.over.wait(0.4)

    def _notify(self, name: str, phase: Phase) -> None:
        with requests.Session() as session:
            one, began = event(name), time.time()
            status = self.machines[name].send(session, [document([one])])
            while not (at := self.heard.first(one["EventId"])) and time.time() < began + PATIENCE:
                time.sleep(0.02)
            phase.notified.note((at or time.time()) - began, status)

    def _attack(self, attack: Attack, ends: float) -> None:
        with requests.Session() as session:
            for number in itertools.count():
                if self.over.is_set() or time.monotonic() > ends or (attack.burst and number >= attack.burst):
                    return
                began = time.monotonic()
                status = self.attacker.send(session, attack.delivery(number))
                self.attacked.attacks.note(time.monotonic() - began, status)

    def _listen(self) -> None:
        """Note when the stream of the last gateway tells of each event."""
        headers = {"Authorization": f"Bearer {self.base.token}"}
        cursor = ""
        while not self.heard_all.is_set():
            with suppress(requests.RequestException):
                more = {"Last-Event-ID": cursor} if cursor else {}
                address = f"http://127.0.0.1:{self.ports[-1]}/api/v1/stream"
                with requests.get(address, headers=headers | more, stream=True, timeout=PATIENCE) as said:
                    begun = b""
                    for chunk in said.iter_content(chunk_size=None):
                        *whole, begun = (begun + chunk).split(b"\n")
                        cursor = self._heard(whole) or cursor
                        if self.heard_all.is_set():
                            return

    def _heard(self, lines: Sequence[bytes]) -> str:
        """Note which events these lines tell of; the last cursor among them."""
        at, cursor = time.monotonic(), ""
        for line in lines:
            if line.startswith(b"id:"):
                cursor = line[3:].decode().strip()
            elif line.startswith(b"data:") and b"event_seen" in line:
                self.seen.setdefault(str(json.loads(line[5:])["event_id"]).upper(), at)
        return cursor
