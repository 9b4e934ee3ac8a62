"""Idle agents: the cost of one in memory and processor, and the return of all at once.

`HELD` of them (8,000 by default) over as many gateway processes as needed; the load runs in separate processes. A
process may have 20,000 files open, so 100,000 agents need six gateways and as many processes of load.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
from drydock_agent import wire

from bench import load
from bench.names import credential, document, spool
from bench.ring import seconds_used
from bench.stage import Stage
from bench.table import Line, at_most, number

AGENTS = int(os.environ.get("HELD", "8000"))
# Of one gateway, and of one process of load.
A_GATEWAY, A_LOAD = 17_000, 10_000
SET_SIZE = 20
# It is counted for two holds: who came at once renews nearly at once, so in part of a hold all of them do, or none.
HOLD_SECONDS = 38.0
IDLE_SECONDS, SETTLE_SECONDS, SECONDS = 10.0, 42.0, 2 * HOLD_SECONDS
# Calls that do not wait, to see how long one takes among the others.
PROBES_A_SECOND = 20
PATIENCE = 300.0
ENROL_CONNECTIONS, ENROL_SECONDS = 64, 10.0
# The size of a fleet for which costs are extrapolated, from the cost of a renewal with the share of the processes' own
# rounds.
FLEET = 100_000

FILL = (
    """INSERT INTO fleet_availabilityset (id, kind, name, key, subscription, resource_group, service, second_person,
           created_at)
       SELECT n, 'availability_set', 'set ' || n, 'set|' || n, '', '', '', false, now()
       FROM generate_series(0, %(n)s / %(s)s) n""",
    """CREATE TEMPORARY TABLE given (id bigint, hash text, spool text, document text)""",
    """INSERT INTO fleet_machine (id, vm_id, resource_name, availability_set_id, stated_set, token_set, set_source,
           set_warnings, zone, region, size, os_type, compute, agent_version, protocol, enrolled_at, credential_hash,
           warnings)
       SELECT id, 'vm-' || id, 'vm' || id, id / %(s)s, '', '', '', '[]', '', '', '', '', '{}', '', 1, now(), hash, '[]'
       FROM given""",
    """INSERT INTO fleet_presencerow (machine_id) SELECT id FROM given""",
    """INSERT INTO fleet_spool (machine_id, spool, epoch, acknowledged, first_seen_at)
       SELECT id, spool, 1, 1, now() FROM given""",
    """INSERT INTO fleet_head (machine_id, epoch, seq, document_hash, at)
       SELECT id, 1, 1, document, now() FROM given""",
)


@dataclass(slots=True)
class Gateway:
    """One process that holds calls, with the server above it."""

    port: int
    pids: list[int]
    kept: http.client.HTTPConnection

    @property
    def seconds(self) -> float:
        return sum(seconds_used(Path(f"/proc/{pid}")) for pid in self.pids)

    @property
    def kib(self) -> int:
        """The memory of all its processes: a page that several share counts once in the sum."""
        return sum(proportional_kib(pid) for pid in self.pids)


def proportional_kib(pid: int) -> int:
    """The Pss of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measure(stage: Stage) -> list[Line]:
    gateways = math.ceil(AGENTS / A_GATEWAY)
    # One for each gateway does not wait.
    fill(stage, AGENTS + gateways)
    running = [start(stage) for _ in range(gateways)]
    for one, gateway in enumerate(running):
        probe(gateway, AGENTS + one)
    new = enrolled(stage, running[0])
    time.sleep(3)
    idle = seconds_of(stage, running)
    time.sleep(IDLE_SECONDS)
    idle = [(b - a) / IDLE_SECONDS for a, b in zip(idle, seconds_of(stage, running), strict=True)]
    empty = sum(gateway.kib for gateway in running)
    began, before = time.monotonic(), seconds_of(stage, running)
    loads = start_loads(stage, running)
    while sum(said(stage, load)["held"] for load in loads) < AGENTS or held(running) < AGENTS:
        if time.monotonic() - began > PATIENCE:
            raise RuntimeError(f"Only {held(running)} of {AGENTS} are held: {[said(stage, load) for load in loads]}")
        time.sleep(0.2)
    login, login_cost = (
        time.monotonic() - began,
        [b - a for a, b in zip(before, seconds_of(stage, running), strict=True)],
    )
    at_start = sum((Counter(said(stage, load)["bad"]) for load in loads), Counter[str]())
    # What came at once is spread by the jitter of one hold.
    time.sleep(SETTLE_SECONDS)
    first, answers = seconds_of(stage, running), sum(said(stage, load)["answers"] for load in loads)
    counting = time.monotonic()
    times = probes(running)
    took = time.monotonic() - counting
    whole = [b - a for a, b in zip(first, seconds_of(stage, running), strict=True)]
    # What the processes do again and again without any agent is not an agent's.
    used = [max(a - b * took, 0.0) for a, b in zip(whole, idle, strict=True)]
    # Calls that do not wait cost as much, except that each is queried alone.
    renewals = sum(said(stage, load)["answers"] for load in loads) - answers + len(times)
    memory = sum(gateway.kib for gateway in running)
    wanted = sum(said(stage, load)["wanted"] for load in loads)
    share, database = whole[0] / took, whole[1] / took
    each_kib, late = (memory - empty) / AGENTS, percentile(times, 0.99)
    processes = math.ceil(FLEET / A_GATEWAY)
    gib = (each_kib * FLEET + empty / gateways * processes) / 1024**2
    cores, of_postgres = (seconds / renewals * FLEET / HOLD_SECONDS for seconds in used)
    return [
        Line("agents held", number(AGENTS), f"{gateways} gateway processes, one connection an agent"),
        Line("memory of an agent", f"{each_kib:.1f} KiB", f"{empty / 1024 / gateways:.0f} MiB a process before"),
        Line(
            "processor of a renewal",
            f"{used[0] / renewals * 1000:.2f} ms",
            f"and Postgres {used[1] / renewals * 1000:.2f} ms",
        ),
        Line(
            "renewals",
            f"{renewals / took:,.0f}/s",
            f"{share:.2f} of a core, {idle[0]:.2f} of it without agents; Postgres {database:.2f} and {idle[1]:.2f}",
        ),
        Line(
            "a renewal during held calls, p99",
            f"{late:.0f} ms",
            f"p50 {percentile(times, 0.5):.0f} ms",
            key="held.p99",
            ratio=late,
            aim=at_most(100),
        ),
        Line(
            "all come at once",
            f"{login:.0f} s",
            f"{login_cost[0] / AGENTS * 1000:.2f} ms each, Postgres {login_cost[1] / AGENTS * 1000:.2f};"
            f" other answers (0: cut or not reached): {dict(at_start) or 'none'}; asked for a report: {wanted}",
        ),
        new,
        Line(
            "so 100,000 take",
            f"{gib:.2f} GiB",
            f"{processes} processes with all that they are",
            key="held.memory",
            ratio=gib,
            aim=at_most(3),
        ),
        Line(
            "and of processor",
            f"{cores:.2f} of a core",
            f"Postgres {of_postgres:.2f}; {processes} processes without agents {idle[0] / gateways * processes:.2f}",
            key="held.processor",
            ratio=cores,
            aim=at_most(1),
        ),
    ]


def enrolled(stage: Stage, gateway: Gateway) -> Line:
    """Measure the enrolment of unknown machines, all at once, through one gateway; 100,000 of them are extrapolated."""
    token = stage.manage("create_join_token").strip()

    def enrolments() -> Iterator[bytes]:
        while True:
            name = str(uuid4())
            asked = {"join_token": token, "machine_id": name, "resource_name": name}
            asked["availability_set"] = f"availability_set:new {name[:2]}"
            yield load.post(wire.ENROL_PATH, msgspec.json.encode(asked))

    before = seconds_of(stage, [gateway])
    done = load.run(gateway.port, [enrolments() for _ in range(ENROL_CONNECTIONS)], ENROL_SECONDS)
    used = [b - a for a, b in zip(before, seconds_of(stage, [gateway]), strict=True)]
    each = [seconds / max(done.good, 1) * 1000 for seconds in used]
    return Line(
        "new machines enrol",
        f"{number(done.rate)}/s",
        f"100,000 in {FLEET / max(done.rate, 1):.0f} s; {each[0]:.2f} ms each, Postgres {each[1]:.2f};"
        f" p99 {done.percentile(0.99):.0f} ms; other answers: {done.bad or 'none'}",
    )


def fill(stage: Stage, machines: int) -> None:
    """Machines that reported once, in sets of twenty."""
    with psycopg.connect(stage.database_url) as connection:
        cursor = connection.cursor()
        for statement in FILL:
            cursor.execute(statement.encode(), {"n": machines, "s": SET_SIZE} if "%(" in statement else None)
            if "TEMPORARY" in statement:
                with cursor.copy("COPY given FROM STDIN") as copy:
                    for one in range(machines):
                        hashed = sha256(credential(one).encode()).hexdigest()
                        copy.write_row((one, hashed, spool(one), document(one)))
        for table in ("fleet_machine", "fleet_availabilityset"):
            # Those that enrol come after them.
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id) + 1) FROM {table}".encode())
        cursor.execute("ANALYZE")


def start(stage: Stage) -> Gateway:
    more = ("--http", "1", "--backlog", "4096")
    port = stage.granian("fleet.asgi:application", path="/healthz", more=more, ENROLMENTS_PER_MINUTE="1000000")
    parent = stage.children[-1].pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    return Gateway(port, [parent, *(int(child) for child in children)], kept)


def start_loads(stage: Stage, running: list[Gateway]) -> list[subprocess.Popen[bytes]]:
    loads = []
    each = math.ceil(AGENTS / len(running))
    for place, gateway in enumerate(running):
        first, end = place * each, min((place + 1) * each, AGENTS)
        for begin in range(first, end, A_LOAD):
            arguments = [str(one) for one in (gateway.port, begin, min(A_LOAD, end - begin))]
            loads.append(stage.start(["-m", "bench.held_agents", *arguments]))
    return loads


def said(stage: Stage, load: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the last counts of this load."""
    lines = [line for line in stage.said(load).splitlines() if line.startswith("{")]
    if load.poll() is not None:
        raise RuntimeError(f"A load ended: {stage.said(load)[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"held": 0, "answers": 0, "wanted": 0, "bad": {}}
    return found


def held(running: list[Gateway]) -> int:
    """Return the number of held calls, as the gateways report it."""
    found = 0
    for gateway in running:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        connection.request("GET", "/metrics")
        for line in connection.getresponse().read().decode().splitlines():
            found += int(float(line.split()[1])) if line.startswith("drydock_held_calls ") else 0
        connection.close()
    return found


def probe(gateway: Gateway, machine: int) -> float:
    """The seconds that one call takes that does not wait: a renewal with its answer, on a connection that is kept."""
    connection = gateway.kept
    now = datetime.now(UTC).isoformat()[:26] + "Z"
    path = (
        f"{wire.ORDERS_PATH}?wait=0&sent_at={now}&last_poll_at={now}&spool={spool(machine)}&acknowledged=1"
        f"&document={document(machine)}"
    )
    began = time.perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {credential(machine)}"})
    answer = connection.getresponse()
    content = answer.read()
    took = time.perf_counter() - began
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {content!r}")
    return took


def probes(running: list[Gateway]) -> list[float]:
    times: list[float] = []
    for gateway in running:
        # The server has ended a connection on which nothing came for half a minute.
        gateway.kept.close()
        gateway.kept.connect()
    began = time.monotonic()
    while (passed := time.monotonic() - began) < SECONDS:
        place = len(times) % len(running)
        times.append(probe(running[place], AGENTS + place))
        time.sleep(max(len(times) / PROBES_A_SECOND - passed, 0.0))
    return times


def percentile(times: list[float], part: float) -> float:
    """Return the percentile in milliseconds."""
    return sorted(times)[min(int(len(times) * part), len(times) - 1)] * 1000


def seconds_of(stage: Stage, running: list[Gateway]) -> list[float]:
    """Return the processor seconds of the gateways and of Postgres."""
    with psycopg.connect(stage.database_url) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity").fetchall()
    database = 0.0
    for (pid,) in rows:
        if Path(f"/proc/{pid}/stat").exists():
            database += seconds_used(Path(f"/proc/{pid}"))
    return [sum(gateway.seconds for gateway in running), database]
