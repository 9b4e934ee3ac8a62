"""The play of a storm: a seeded fleet, every process real, simulated machines, approvals in bulk and by click.

`play` measures and asserts nothing: `bench.storm` compares its result with aims, and a test checks its correctness.
"""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
import requests
from azure_simulator.child_process import RunningSimulator

from bench import processor
from bench.painted import Painter
from bench.stage import Stage, free_port
from bench.storm_outcome import Outcome, Storm

# Presence lasts longer than a play: one machine of each set holds a call. `bench.held` measures renewals.
PRESENT = {"MACHINE_LIVE_SECONDS": "3000", "MACHINE_LATE_SECONDS": "6000"}
CREDENTIALS = """UPDATE fleet_machine
    SET credential_hash = encode(sha256(convert_to('storm-' || id, 'UTF8')), 'hex')"""
# As the agents report it. It was there before, so no set has changed since it was judged: triggers would note each.
HEARD = """SET session_replication_role = replica;
    UPDATE fleet_presencerow SET last_heard_at = now(), last_poll_at = now(), signatures = 'none';
    RESET session_replication_role"""
# One decision after the other in a service; each set that is decided about stands alone.
ALONE = "UPDATE fleet_availabilityset SET service = ''"
MACHINES = """SELECT home.kind || ':' || home.subscription || '/' || home.resource_group || '/' || home.name,
        machine.id, machine.resource_name, spool.spool::text, spool.acknowledged
    FROM fleet_machine machine JOIN fleet_availabilityset home ON home.id = machine.availability_set_id
    JOIN fleet_spool spool ON spool.machine_id = machine.id ORDER BY machine.id"""
LISTED = """SELECT event.event_id FROM fleet_scheduledevent event WHERE event.event_id = ANY(%s) AND %s <=
    (SELECT count(*) FROM fleet_sighting WHERE event_id = event.id AND listed_seq IS NOT NULL)"""
# This many events are queried at once, and unfinished ones again: measuring is to cost little.
ASKED_ABOUT = 100
OPEN = "SELECT count(*) FROM fleet_approval WHERE state NOT IN ('CONFIRMED', 'VOID', 'REFUSED', 'WITHDRAWN', 'LAPSED')"


class Play:
    """The processes of one storm."""

    def __init__(self, stage: Stage, storm: Storm, simulator: RunningSimulator, machines: list[list[Any]]) -> None:
        self.stage, self.storm, self.simulator = stage, storm, simulator
        self.outcome = Outcome()
        self.url = ""
        self.database = psycopg.connect(stage.database_url, autocommit=True)
        self.processes: dict[str, int] = {"simulator": simulator.pid}
        self.machines = machines
        self.sets = list(dict.fromkeys(row[0] for row in machines))
        self.names = {row[0]: row[2] for row in reversed(machines)}
        self.plan = stage.folder / "plan.json"

    def start(self) -> None:
        """Start web processes, worker, beat, a person, and the simulated machines; return once their calls are held."""
        ports = [free_port() for _ in range(self.storm.web_processes)]
        # Machines are the first one's, people the last one's.
        gateway, self.url = (f"http://127.0.0.1:{port}" for port in (ports[0], ports[-1]))
        self.variables = {**PRESENT, "BASE_URL": self.url}
        children = {}
        for name, command in {
            **{f"web {number}": ["manage.py", "web", "--port", str(port)] for number, port in enumerate(ports)},
            "worker": ["manage.py", "worker"],
            "beat": ["manage.py", "beat", "--", "--schedule", str(self.stage.folder / "beat")],
        }.items():
            children[name] = self.stage.start(command, **self.variables)
        self.processes |= {name: child.pid for name, child in children.items()}
        self.worker = children["worker"]
        for url in (gateway, self.url):
            self.until(partial(_answers, url), 60)
        self.password = self.stage.manage("create_person", "storm", "--group", "operator").strip()
        scopes = ("--scope=read", "--scope=approve")
        self.token = self.stage.manage("create_token", "storm", *scopes).strip()
        first: set[str] = set()
        rows = []
        for home, machine_id, _, spool, acknowledged in self.machines:
            rows.append([home, f"m{machine_id}", f"storm-{machine_id}", spool, acknowledged, home not in first])
            first.add(home)
        self.plan.write_text(json.dumps({"gateway": gateway, "simulator": self.simulator.url, "machines": rows}))
        self.loads = [
            self.stage.start(["-m", "bench.agent_load", str(self.plan), str(part), str(self.storm.loads)])
            for part in range(self.storm.loads)
        ]
        self.processes |= {f"agents {part}": child.pid for part, child in enumerate(self.loads)}
        self.until(lambda: all("are there" in self.stage.said(child) for child in self.loads), 120)

    def until(self, question: Any, seconds: float, every: float = 0.2) -> bool:
        """Whether it became true in time."""
        deadline = time.monotonic() + seconds
        while not question():
            if time.monotonic() > deadline:
                return False
            time.sleep(every)
        return True

    def one(self, query: str, *values: Any) -> int:
        row = self.database.execute(query.encode(), values).fetchone()
        return int(row[0]) if row else 0

    def listed(self, event_ids: list[str]) -> list[str]:
        """Which of these events all of their machines have said to be listed."""
        asked = self.database.execute(LISTED.encode(), [event_ids, self.storm.machines])
        return [event_id for (event_id,) in asked.fetchall()]

    def all_listed(self, still: list[str]) -> bool:
        """Whether nothing of `still` is missing; what is listed is taken out of it."""
        while through := set(self.listed(still[:ASKED_ABOUT])):
            still[:] = [event_id for event_id in still if event_id not in through]
        return not still

    def by_state(self) -> dict[str, int]:
        """Return how many approvals of the fleet are in each state."""
        return dict(self.database.execute("SELECT state, count(*) FROM fleet_approval GROUP BY 1").fetchall())

    def announce(self) -> None:
        """All of the storm by one call."""
        storm, every = self.storm, max(1, self.storm.events // max(1, self.storm.probes))
        events, self.probes = [], set()
        for number, home in enumerate(self.sets):
            probe = storm.probes and number % every == every - 1
            body = {"set": home, "type": "Freeze", "resources": [self.names[home]], "started_seconds": 5}
            events.append(body | {"duration_seconds": 5, "notice_seconds": 600 if probe else 900})
            if probe:
                self.probes.add(number)
        self.ids = self.simulator.events.create_all(events, within_seconds=storm.within)
        self.outcome.announced = len(self.ids)
        self.to_click = self.ids[storm.approvals + storm.refused :][: storm.clicks]

    def approve_in_bulk(self) -> None:
        """Approve all of them, this many a call; held events are requested among them."""
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {self.token}"
        approvals = self.storm.approvals
        wanted = self.ids[: approvals + self.storm.refused]
        for event_id in wanted[approvals:]:
            address = f"{self.url}/api/v1/events/{event_id}/holds/"
            session.post(address, json={"reason": "It is to run by itself."}, timeout=60).raise_for_status()
        self.outcome.asked += wanted[:approvals]
        # So that each call has some of both.
        wanted.sort()
        self.bulk_began = time.time()
        for place in range(0, len(wanted), self.storm.chosen):
            if place and self.storm.worker_dies and len(self.outcome.bulk) == 1:
                self.kill_worker()
            chosen = wanted[place : place + self.storm.chosen]
            began = time.monotonic()
            body = {"events": chosen, "comment": "The storm is let through."}
            key = {"Idempotency-Key": f"storm-{place}"}
            said = session.post(f"{self.url}/api/v1/bulk/approvals/", json=body, headers=key, timeout=120)
            said.raise_for_status()
            self.outcome.bulk.append(time.monotonic() - began)
            self.outcome.results.update(one["status"] for one in said.json()["results"])

    def kill_worker(self) -> None:
        self.worker.kill()
        self.worker.wait()
        self.worker = self.stage.start(["manage.py", "worker"], **self.variables)
        self.processes["worker"] = self.worker.pid

    def click(self, event_id: str) -> float:
        """Approve one on its page; when that was, in seconds since 1970."""
        address = f"{self.url}/events/{event_id}/"
        page = self.person.get(address, timeout=30).text
        version = re.search(r'name="expected_version" value="(\d+)"', page)
        form = {"csrfmiddlewaretoken": self._csrf(), "comment": "now", "when": "now"}
        form["expected_version"] = version[1] if version else ""
        began = time.time()
        said = self.person.post(
            f"{address}approve/", data=form, headers={"Referer": address}, timeout=30, allow_redirects=False
        )
        said.raise_for_status()
        return began

    def log_in(self) -> None:
        self.person = requests.Session()
        address = f"{self.url}/accounts/login/"
        self.person.get(address, timeout=30)
        form = {"login": "storm", "password": self.password, "csrfmiddlewaretoken": self._csrf()}
        self.person.post(address, data=form, headers={"Referer": address}, timeout=30).raise_for_status()

    def _csrf(self) -> str:
        return next(cookie.value or "" for cookie in self.person.cookies if "csrf" in cookie.name.lower())

    def click_meanwhile(self, over: threading.Event) -> None:
        """Approve events that are not in the bulk calls, one a second, once they are listed."""
        self.clicked: dict[str, float] = {}
        for event_id in self.to_click:
            if over.is_set():
                break
            # An event that is not visible is not clicked; it counts as never listed.
            if self.until(lambda event_id=event_id: self.listed([event_id]), 120):
                self.clicked[event_id] = self.click(event_id)
            time.sleep(min(1.0, self.storm.within / max(1, self.storm.clicks)))
        self.outcome.asked += self.clicked

    def gather(self) -> None:
        """Gather the final state of the simulator, the database and the simulated agents."""
        outcome = self.outcome
        for child in self.loads:
            child.terminate()
            child.wait(60)
        said = [json.loads(self.plan.with_name(f"plan.json.{part}").read_text()) for part in range(self.storm.loads)]
        self.seen: dict[str, float] = {}
        for one in said:
            outcome.sent += one["sent"]
            outcome.waiting += one["waiting"]
            outcome.answers.update(one["answers"])
            for event_id, at in one["seen"].items():
                self.seen[event_id] = min(at, self.seen.get(event_id, at))
        bulk = set(self.ids[: self.storm.approvals])
        for event in self.simulator.events.all():
            times = [datetime.fromisoformat(one["time"]).timestamp() for one in event["approvals"]]
            if times:
                outcome.starts[event["EventId"]] = len(times)
            if times and event["EventId"] in bulk:
                outcome.last_start = max(outcome.last_start, times[0] - self.bulk_began)
            if times and event["EventId"] in self.clicked:
                outcome.clicks.append(times[0] - self.clicked[event["EventId"]])
        outcome.known = self.one("SELECT count(*) FROM fleet_scheduledevent WHERE event_id = ANY(%s)", self.ids)
        outcome.states = self.by_state()


def play(stage: Stage, storm: Storm) -> Outcome:
    """Seed, start, announce, approve, and wait until Azure is through with what was approved."""
    entries = max(1_000, storm.events * 4)
    stage.seed(
        f"--machines={storm.events * storm.machines}", f"--set-size={storm.machines}", f"--entries={entries}",
        "--open-events=0",
    )  # fmt: skip
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        for statement in (CREDENTIALS, HEARD, ALONE):
            connection.execute(statement.encode())
        # Rows that were just seeded and changed are vacuumed now: in a running fleet this does not happen in the middle
        # of a storm.
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
        machines = [list(row) for row in connection.execute(MACHINES.encode()).fetchall()]
    with RunningSimulator(_fleet(machines)) as simulator:
        it = Play(stage, storm, simulator, machines)
        earlier = it.by_state()
        it.start()
        it.log_in()
        with Painter(it.url, "storm", it.password, wanted=storm.browser) as painter:
            _through(it, painter)
        for state, count in earlier.items():
            it.outcome.states[state] -= count
        it.database.close()
        return it.outcome


def _through(it: Play, painter: Painter) -> None:
    storm, outcome = it.storm, it.outcome
    before, began = processor.used(it.processes), time.monotonic()
    it.announce()
    over = threading.Event()
    clicker = threading.Thread(target=it.click_meanwhile, args=(over,))
    clicker.start()
    still = list(it.ids)
    it.until(lambda: it.all_listed(still), storm.within + 180, every=1.0)
    outcome.listed_after = time.monotonic() - began
    it.approve_in_bulk()
    clicker.join(180)
    over.set()
    # Until all that was granted has come to an end, and what ended is known to have.
    it.until(lambda: it.one(OPEN) == 0, 180, every=0.5)
    used = processor.used(it.processes)
    outcome.processor = {name: used[name] - before.get(name, 0.0) for name in used}
    outcome.paints_a_second = painter.paints() / (time.monotonic() - began)
    painted = painter.times()
    it.gather()
    for number in sorted(it.probes):
        event_id = it.ids[number]
        if event_id in it.seen and event_id in painted:
            outcome.painted.append(painted[event_id] - it.seen[event_id])


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def _fleet(machines: list[list[Any]]) -> dict[str, Any]:
    """The simulator's fleet file of these machines."""
    sets: dict[str, dict[str, Any]] = {}
    for home, machine_id, name, *_ in machines:
        kind, _, place = home.partition(":")
        subscription, group, own = place.split("/")
        one = sets.setdefault(
            home,
            {"kind": kind, "name": own, "subscription": subscription, "resource_group": group, "machines": []},
        )
        one["machines"].append({"id": f"m{machine_id}", "name": name})
    return {"sets": list(sets.values())}
