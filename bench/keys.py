# ruff: noqa: PLC0415 - what needs Django is imported once there are settings
"""What a signed call costs beside a bearer token, in processor time: to know who calls, and that the body is theirs.

In one process and in turns. Beside it stands what the gateway takes for one report, out of which that is a part: a
process of its own takes both kinds of calls, in turns as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from uuid import uuid4

import requests
from drydock_agent import wire
from drydock_agent.backend.own_key import Key, Secret, authorization

from bench import processor
from bench.stage import Stage
from bench.table import Line, at_most

ROUNDS, CALLS = 11, 400


def measure(stage: Stage) -> list[Line]:
    port = stage.granian("fleet.asgi:application", path="/healthz")
    token = stage.manage("create_join_token").strip()
    url = f"http://127.0.0.1:{port}"
    seconds: dict[str, list[float]] = {"bearer": [], "signed": []}
    with requests.Session() as session:
        machines = {name: _enrolled(session, url, token, keyed=name == "signed") for name in seconds}
        at = dict.fromkeys(seconds, 0)
        for number in range(ROUNDS + 1):
            for name, secret in machines.items():
                before = _used(stage)
                for _ in range(CALLS):
                    at[name] += 1
                    _report(session, url, secret, name, at[name])
                # The first round is for nothing: what is looked up then is known later.
                if number:
                    seconds[name].append(_used(stage) - before)
    bearer, signed = (median(seconds[name]) / CALLS for name in ("bearer", "signed"))
    micro = _alone()
    return [
        Line("a report by bearer token", f"{bearer * 1e6:.0f} µs of the gateway"),
        Line("a report that is signed", f"{signed * 1e6:.0f} µs of the gateway"),
        Line("the check of a bearer token alone", f"{micro['bearer']:.1f} µs"),
        Line("the check of a signature alone", f"{micro['signed']:.1f} µs, with a body of 2 kB"),
        Line(
            "the signature, of what a report takes",
            f"{(micro['signed'] - micro['bearer']) / (bearer * 1e4):.2f} %",
            key="keys.of-ingest",
            ratio=(micro["signed"] - micro["bearer"]) / (bearer * 1e6),
            aim=at_most(0.02),
        ),
    ]


def _used(stage: Stage) -> float:
    return sum(processor.used({str(child.pid): child.pid for child in stage.children}).values())


def _enrolled(session: requests.Session, url: str, token: str, *, keyed: bool) -> Secret:
    body = {"join_token": token, "machine_id": str(uuid4()), "availability_set": "keys", "keyed": keyed}
    said = session.post(url + wire.ENROL_PATH, json=body, timeout=30).json()
    return Key(said["machine_id"], said["generation"], said["key"]) if keyed else str(said["credential"])


def _report(session: requests.Session, url: str, secret: Secret, spool: str, seq: int) -> None:
    now = datetime.now(UTC)
    report = f'{{"seq":{seq},"kind":"coverage","at":"{now.isoformat()}","data":{{"of":"{"x" * 1800}"}}}}'
    body = f'{{"spool":"{spool}","sent_at":"{now.isoformat()}","reports":[{report}]}}'.encode()
    headers = {"Authorization": authorization(secret, "POST", wire.REPORTS_PATH, body, now)}
    session.post(url + wire.REPORTS_PATH, data=body, headers=headers, timeout=30).raise_for_status()


def _alone() -> dict[str, float]:
    """Microseconds of processor time for each, in turns."""
    import os

    import django

    os.environ.setdefault("SECRET_KEY", "for this one measurement")
    os.environ.setdefault("DATABASE_URL", "postgresql://nobody@localhost/none")
    os.environ.setdefault("REDIS_URL", "redis://localhost")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
    django.setup()
    from hashlib import sha256

    from fleet.domain.machines.keys import machine_key
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
        return Request({**scope, "headers": [(b"authorization", said)]}, _nobody)

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


async def _nobody() -> dict[str, object]:
    raise AssertionError
