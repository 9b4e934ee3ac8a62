"""Documents per second, answered after their commit, through the gateway and through a plain DRF view.

The rounds of the three are interleaved, so that whatever else the machine does hits all of them; the median counts, and
only what is in the database afterwards counts at all.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from uuid import uuid4

import psycopg
import requests
from drydock_agent import wire

from bench import load
from bench.stage import Stage
from bench.table import Line, number

MACHINES = 360
ROUNDS = 5
SECONDS = 2.5
# Connections: agents with one document each; a few that catch up; thrice as many as the baseline has threads.
SINGLE, CATCHING_UP, BASELINE = 64, 8, 24
BATCH = 100


@dataclass(slots=True)
class Machine:
    """One pretended agent: its credential, and where its spool stands."""

    credential: str
    spool: str = field(default_factory=lambda: str(uuid4()))
    seq: int = 0


@dataclass(slots=True)
class Contestant:
    """One way in: its port, its machines, documents a request, and its rounds."""

    name: str
    port: int
    machines: list[Machine]
    connections: int
    documents: int
    rounds: list[load.Round] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return median(one.rate for one in self.rounds) * self.documents

    def percentile(self, part: float) -> float:
        return median(one.percentile(part) for one in self.rounds)


def measure(stage: Stage) -> list[Line]:
    gateway = stage.granian("fleet.asgi:application", path="/healthz")
    drf = stage.granian(
        "bench.drf:application", interface="wsgi", path="/agent/v1/reports", DJANGO_SETTINGS_MODULE="bench.drf_settings"
    )
    machines = enrol(stage, gateway, 3 * MACHINES)
    single = Contestant("gateway, one document a POST", gateway, machines[:MACHINES], SINGLE, 1)
    batches = Contestant(f"gateway, batches of {BATCH}", gateway, machines[MACHINES : 2 * MACHINES], CATCHING_UP, BATCH)
    plain = Contestant("DRF view, get_or_create", drf, machines[2 * MACHINES :], BASELINE, 1)
    contestants = (single, plain, batches)
    before = count(stage)
    for contestant in contestants:
        # Once for nothing: connections are made, credentials become known.
        play(contestant, SECONDS / 2)
    warm = {contestant.name: contestant.rounds.pop() for contestant in contestants}
    for _ in range(ROUNDS):
        for contestant in contestants:
            play(contestant, SECONDS)
    sent = sum(
        one.good * contestant.documents
        for contestant in contestants
        for one in (*contestant.rounds, warm[contestant.name])
    )
    found = count(stage) - before
    bad = {status for contestant in contestants for one in contestant.rounds for status in one.bad}
    lines = [
        Line(
            f"documents: {contestant.name}",
            f"{number(contestant.rate)}/s",
            f"p50 {contestant.percentile(0.5):.0f} ms, p99 {contestant.percentile(0.99):.0f} ms,"
            f" {contestant.connections} connections",
        )
        for contestant in contestants
    ]
    lines.append(Line("one document a POST, beside DRF", f"{single.rate / plain.rate:.1f} times"))
    lines.append(Line("batches, beside DRF", f"{batches.rate / plain.rate:.1f} times"))
    # A request that was cut off at the end of a round may have been committed without having been counted.
    honest = "all read back" if found >= sent else f"ONLY {number(found)} READ BACK"
    lines.append(Line("acknowledged", number(sent), honest + (f"; other answers: {sorted(bad)}" if bad else "")))
    return lines


def play(contestant: Contestant, seconds: float) -> None:
    streams = [
        posts(contestant.machines[place :: contestant.connections], contestant.documents)
        for place in range(contestant.connections)
    ]
    contestant.rounds.append(load.run(contestant.port, streams, seconds))


def posts(machines: list[Machine], documents: int) -> Iterator[bytes]:
    """Requests of these machines in turn; every document is another one."""
    for machine in itertools.cycle(machines):
        now = datetime.now(UTC).isoformat()
        reports = []
        for _ in range(documents):
            machine.seq += 1
            body = f'{{"DocumentIncarnation":{machine.seq},"Events":[],"of":"{machine.spool}"}}'
            data = {"body": body, "hash": hashlib.sha256(body.encode()).hexdigest(), "incarnation": machine.seq}
            reports.append({"seq": machine.seq, "kind": wire.DOCUMENT, "at": now, "data": data})
        batch = {"spool": machine.spool, "sent_at": now, "last_poll_at": now, "held": [], "reports": reports}
        yield load.post(wire.REPORTS_PATH, json.dumps(batch).encode(), token=machine.credential)


def enrol(stage: Stage, port: int, machines: int) -> list[Machine]:
    """Machines in availability sets of six, by the gateway itself."""
    token = stage.manage("create_join_token").strip()
    url = f"http://127.0.0.1:{port}{wire.ENROL_PATH}"
    made = []
    with requests.Session() as session:
        for place in range(machines):
            body = {
                "join_token": token,
                "machine_id": str(uuid4()),
                "resource_name": f"vm{place}",
                "availability_set": f"availability_set:set{place // 6}",
            }
            said = session.post(url, json=body, timeout=10)
            said.raise_for_status()
            made.append(Machine(said.json()["credential"]))
    return made


def count(stage: Stage) -> int:
    with psycopg.connect(stage.database_url) as connection:
        row = connection.execute("SELECT count(*) FROM fleet_observation").fetchone()
        return int(row[0]) if row else 0
