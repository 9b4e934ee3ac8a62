"""Documents per second, answered after their commit: through the gateway, through a plain DRF view, and as bare COPY.

The rounds of all of them take turns, so that whatever else the machine does hits each; the median counts, and only what
is in the database afterwards counts at all. COPY → stage → ON CONFLICT is the cost in Postgres alone, without
authentication, parsing, merging or answers.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from uuid import uuid4

import msgspec
import psycopg
import requests
from drydock_agent import wire

from bench import load
from bench.raw import copied
from bench.stage import Stage
from bench.table import Line, at_least, at_most, number

ROUNDS = 5
SECONDS = 2.0
# Connections: agents with one document each, few and many; some that catch up; thrice as many as the baseline has
# threads.
SINGLE, MANY, CATCHING_UP, BASELINE = 64, 256, 8, 24
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
    one = stage.granian("fleet.asgi:application", path="/healthz")
    two = stage.granian("fleet.asgi:application", path="/healthz", more=("--workers", "2"))
    drf = stage.granian(
        "bench.drf:application", interface="wsgi", path="/agent/v1/reports", DJANGO_SETTINGS_MODULE="bench.drf_settings"
    )
    # Two for each connection, so that one's next report does not wait for its last one's commit alone.
    machines = iter(enrol(stage, one, 2 * (2 * SINGLE + MANY + CATCHING_UP + BASELINE)))

    def contestant(name: str, port: int, connections: int, documents: int = 1) -> Contestant:
        return Contestant(name, port, list(itertools.islice(machines, 2 * connections)), connections, documents)

    single = contestant("one process, one document a POST", one, SINGLE)
    double = contestant("two processes, one document a POST", two, SINGLE)
    many = contestant("two processes, one document a POST", two, MANY)
    batches = contestant(f"two processes, batches of {BATCH}", two, CATCHING_UP, BATCH)
    plain = contestant("DRF view, get_or_create", drf, BASELINE)
    contestants = (single, double, many, batches, plain)
    before = count(stage)
    for each in contestants:
        # Once for nothing: connections are made, credentials become known.
        play(each, SECONDS)
    sent = sum(each.rounds.pop().good * each.documents for each in contestants)
    copies = []
    for _ in range(ROUNDS):
        copies.append(copied(stage, SECONDS))
        for each in contestants:
            play(each, SECONDS)
    copy = median(copies)
    sent += sum(each.good * of.documents for of in contestants for each in of.rounds)
    found = count(stage) - before
    bad = {status for each in contestants for one_round in each.rounds for status in one_round.bad}
    # A request that was cut off at the end of a round may have been committed without having been counted.
    honest = "all read back" if found >= sent else f"ONLY {number(found)} READ BACK"
    best = max(double.rate, many.rate)
    return [
        Line("COPY → stage → ON CONFLICT", f"{number(copy)} rows/s"),
        *(_rate(each) for each in contestants),
        Line("one process, compared with COPY", f"{single.rate / copy:.3g} times"),
        _ratio_line("two processes, compared with COPY", "ingest.two-processes-beside-copy", best / copy, 0.045),
        _ratio_line("two processes, compared with DRF", "ingest.two-processes-beside-drf", best / plain.rate, 20),
        _ratio_line("batches, compared with COPY", "ingest.batches-beside-copy", batches.rate / copy, 0.15),
        Line(
            f"two processes, p99 at {SINGLE} connections",
            f"{double.percentile(0.99):.0f} ms",
            key="ingest.p99",
            ratio=double.percentile(0.99),
            aim=at_most(60),
        ),
        Line("two processes", f"{number(best)}/s", key="ingest.two-processes", ratio=best, aim=at_least(5000)),
        Line("acknowledged", number(sent), honest + (f"; other answers: {sorted(bad)}" if bad else "")),
    ]


def _rate(of: Contestant) -> Line:
    said = f"p50 {of.percentile(0.5):.0f} ms, p99 {of.percentile(0.99):.0f} ms, {of.connections} connections"
    return Line(f"documents: {of.name}", f"{number(of.rate)}/s", said)


def _ratio_line(what: str, key: str, ratio: float, aim: float) -> Line:
    return Line(what, f"{ratio:.3g} times", key=key, ratio=ratio, aim=at_least(aim))


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
        yield load.post(wire.REPORTS_PATH, msgspec.json.encode(batch), token=machine.credential)


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
        row = connection.execute("SELECT count(*) FROM fleet_observation_all").fetchone()
        return int(row[0]) if row else 0
