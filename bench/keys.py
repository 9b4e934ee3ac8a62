# ruff: noqa: PLC0415 - what needs Django is imported once there are settings
"""The cost of a signed call compared with a bearer token, in processor time: for authentication and the integrity of
the body.

In one process and in turns. The comparison is the cost of one document for the gateway and Postgres, at their usual
rate of many at a time over 64 connections. A report alone on its connection would pay for a whole commit, and make any
part of it look small.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from unittest.mock import patch
from uuid import uuid4

import psycopg
from drydock_agent import wire
from drydock_agent.backend.machine_key import Key, Secret, authorization

from bench import ingest, processor
from bench.ring import seconds_used
from bench.stage import Stage
from bench.table import Line, at_most

ROUNDS, SECONDS = 7, 3.0


def measure(stage: Stage) -> list[Line]:
    port = stage.granian("fleet.asgi:application", path="/healthz")
    machines = ingest.enrol(stage, port, 2 * ingest.SINGLE)
    documents = ingest.Contestant("one document a POST", port, machines, ingest.SINGLE, 1)
    taken = []
    for number in range(ROUNDS + 1):
        before = _used(stage)
        ingest.play(documents, SECONDS)
        # The first round is for nothing: connections are made, credentials become known.
        if number:
            good = documents.rounds[-1].good
            taken.append([(b - a) / good * 1e6 for a, b in zip(before, _used(stage), strict=True)])
    gateway, document, micro = median(one for one, _ in taken), median(map(sum, taken)), _alone()
    extra = micro["signed"] - micro["bearer"]
    return [
        Line(
            "a document by bearer token",
            f"{document:.0f} µs",
            f"{min(map(sum, taken)):.0f} to {max(map(sum, taken)):.0f}; {gateway:.0f} of them the gateway's, the others"
            f" Postgres'; {ingest.SINGLE} connections",
        ),
        Line("the check of a bearer token", f"{micro['bearer']:.1f} µs"),
        Line("the check of a signature", f"{micro['signed']:.1f} µs", "with a body of 2 kB"),
        Line(
            "what a signature costs more, of a document",
            f"{100 * extra / document:.2f} %",
            f"{extra:.1f} µs; {100 * extra / gateway:.2f} % of the gateway's part",
            key="keys.of-ingest",
            ratio=extra / document,
            aim=at_most(0.02),
        ),
    ]


def _used(stage: Stage) -> tuple[float, float]:
    """Seconds of processor, of the gateway and of Postgres' connections."""
    gateway = sum(processor.used({str(child.pid): child.pid for child in stage.children}).values())
    with psycopg.connect(stage.database_url) as connection:
        pids = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity").fetchall()]
    there = [Path(f"/proc/{pid}") for pid in pids if Path(f"/proc/{pid}/stat").exists()]
    return gateway, sum(seconds_used(one) for one in there)


def _alone() -> dict[str, float]:
    """Microseconds of processor time for each, in turns."""
    import django

    # The settings want servers; the measurements after this one start their own.
    servers = {"DATABASE_URL": "postgresql://nobody@localhost/none", "REDIS_URL": "redis://localhost"}
    own = {"SECRET_KEY": "for this one measurement", "DJANGO_SETTINGS_MODULE": "fleet.settings"}
    with patch.dict(os.environ, {**servers, **own, **os.environ}):
        django.setup()
    from hashlib import sha256

    from fleet.domain.machines.enrolment import machine_key
    from fleet.domain.secrets import hash_of, new_secret
    from fleet.gateway.http import Request
    from fleet.gateway.signed_calls import SignedCalls
    from fleet.models.cipher import derived_keys
    from fleet.operations.machines.keys import PURPOSE

    now, body, calls = datetime.now(UTC), b"x" * 2048, SignedCalls()
    vm_id, plain = str(uuid4()), new_secret("agent")
    key = Key(vm_id, 7, machine_key(derived_keys(PURPOSE)[0], vm_id, 7).hex())
    scope = {"method": "POST", "path": wire.REPORTS_PATH, "query_string": b""}

    def request(secret: Secret) -> Request:
        said = authorization(secret, "POST", wire.REPORTS_PATH, body, now).encode()
        return Request({**scope, "headers": [(b"authorization", said)]}, _no_body)

    def signed(one: Request) -> None:
        calls.read(one, now)
        assert one.signed_hash == sha256(body).hexdigest()

    def bearer(one: Request) -> None:
        calls.read(one, now)
        hash_of(one.bearer)

    found: dict[str, list[float]] = {"bearer": [], "signed": []}
    ways: dict[str, tuple[Callable[[Request], None], Secret]] = {"bearer": (bearer, plain), "signed": (signed, key)}
    for _ in range(ROUNDS):
        for name, (way, secret) in ways.items():
            made = [request(secret) for _ in range(2000)]
            began = time.process_time()
            for one in made:
                way(one)
            found[name].append((time.process_time() - began) / len(made) * 1e6)
    return {name: median(each) for name, each in found.items()}


async def _no_body() -> dict[str, object]:
    raise AssertionError
