"""Stolen credentials: every gateway process cuts a revoked machine off, and a replayed call counts once."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from django.apps import apps
from django.utils import timezone
from drydock_agent import wire
from drydock_agent.backend.machine_key import Key, authorization

from fleet.domain.actor import COMMAND_LINE
from fleet.models import Approval, Machine, Observation, Order, PresenceRow
from fleet.operations.machines import decommission
from fleet.operations.orders import advance
from tests.factories import Fleet, announced, open_order
from tests.gateway.enrolment import Installation
from tests.gateway_process import Agent, Gateway, running_gateway
from tests.processes import wait_for

pytestmark = pytest.mark.real_time


def seconds_until(done: Callable[[], bool], began: float) -> float:
    while not done():
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    return time.monotonic() - began


def cut_off(agents: list[Agent]) -> tuple[float, float]:
    """Seconds from the revocation until every gateway answers 401 to a call, and until the held call has ended."""
    agent = agents[0]
    machine = Machine.objects.get(vm_id=agent.vm_id)
    for each in agents:
        assert each.post().status_code == 200
    taken = Observation.objects.filter(machine=machine).count()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agents[-1].orders, wait=25)
        time.sleep(0.3)
        decommission.revoke(machine_id=machine.pk, actor=COMMAND_LINE, now=timezone.now())
        began = time.monotonic()
        # What it sends is not taken from the first moment on, whatever a gateway still believes.
        for each in agents:
            assert each.post(each.document()).status_code == 401
        off = seconds_until(lambda: all(each.orders().status_code == 401 for each in agents), began)
        call.result(30)
        ended = time.monotonic() - began
    assert Observation.objects.filter(machine=machine).count() == taken
    return off, ended


def test_with_redis_it_takes_a_moment_and_without_it_about_a_second(
    gateway: Gateway, installation: Installation, without_redis: Gateway, folder: Path
) -> None:
    rounds = []
    for _ in range(3):
        agent = gateway.agent()
        rounds.append(cut_off([agent, replace(agent, url=installation.gateway.url)]))
    with running_gateway(without_redis.urls, folder) as other:
        alone = []
        for _ in range(3):
            agent = without_redis.agent()
            alone.append(cut_off([agent, replace(agent, url=other.url)]))
    # Measured: 10 to 120 ms with Redis, 0.6 to 0.8 s without; a cached credential alone would live for ten minutes.
    assert min(off for off, _ in rounds) < 0.5, rounds
    assert max(max(pair) for pair in alone) < 5, alone


def test_without_redis_what_a_machine_had_before_it_enrolled_again_ends_too(
    gateway: Gateway, without_redis: Gateway
) -> None:
    agent = replace(gateway.agent(), url=without_redis.url)
    assert agent.post().status_code == 200
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.orders, wait=40)
        time.sleep(0.5)
        # Another process writes this, and without Redis it cannot send a wake-up.
        Machine.objects.filter(vm_id=agent.vm_id).update(credential_hash="another", enrolled_at=timezone.now())
        began = time.monotonic()
        seconds_until(lambda: agent.orders().status_code == 401, began)
        call.result(30)
    assert time.monotonic() - began < 20


@dataclass(frozen=True)
class Call:
    """One signed call, as an attacker on the network path records it."""

    method: str
    target: str
    body: bytes | None
    said: str

    def sent(self, gateway: Gateway) -> requests.Response:
        headers = {"Authorization": self.said, "Content-Type": "application/json"}
        return requests.request(self.method, gateway.url + self.target, data=self.body, headers=headers, timeout=30)


@dataclass
class Machines:
    """A machine with a key, its story, and two processes that it may call."""

    fleet: Fleet
    key: Key
    one: Gateway
    other: Gateway
    seq: int = 0

    @property
    def presence(self) -> PresenceRow:
        return PresenceRow.objects.get(machine__vm_id=self.key.machine_id)

    def call(self, method: str, target: str, body: Any = None, *, ago: float = 0) -> Call:
        raw = json.dumps(body).encode() if body is not None else None
        at = datetime.now(UTC) - timedelta(seconds=ago)
        return Call(method, target, raw, authorization(self.key, method, target, raw, at))

    def reports(self, *reports: dict[str, Any], ago: float = 0, **more: Any) -> Call:
        at = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
        body = {"spool": "its spool", "sent_at": at, "last_poll_at": at, "reports": list(reports), **more}
        return self.call("POST", wire.REPORTS_PATH, body, ago=ago)

    def report(self, kind: str, data: Any) -> dict[str, Any]:
        self.seq += 1
        return {"seq": self.seq, "kind": kind, "at": datetime.now(UTC).isoformat(), "data": data}

    def orders(self, *, ago: float = 0, held: str = "") -> Call:
        at = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
        more = f"&held={held}" if held else ""
        return self.call("GET", f"{wire.ORDERS_PATH}?wait=0&sent_at={at}&last_poll_at={at}{more}", ago=ago)

    def settle(self, gateway: Gateway) -> None:
        """What this process has noted of contacts is written by now: another machine's later one is."""
        began = datetime.now(UTC)
        witness = replace(self.one.agent(), url=gateway.url)
        assert witness.post().status_code == 200
        rows = PresenceRow.objects.filter(machine__vm_id=witness.vm_id, last_heard_at__gte=began)
        wait_for(rows.exists, seconds=20, what="contacts are written", every=0.2)


@pytest.fixture
def machines(gateway: Gateway, without_redis: Gateway) -> Machines:
    """One process has Redis and the other has none, so they cannot notify each other through it."""
    fleet, name = Fleet(now=datetime.now(UTC)), f"s{uuid4().hex[:8]}"
    agent, _ = fleet.enrol_set(2, prefix=f"{name}-", availability_set=name)
    asked = {"credential": agent.credential, "keyed": True, "availability_set": name}
    asked |= {"machine_id": agent.machine.vm_id, "join_token": "", "resource_name": agent.machine.resource_name}
    said = requests.post(f"{gateway.url}{wire.ENROL_PATH}", json=asked, timeout=30).json()
    return Machines(fleet, Key(said["machine_id"], said["generation"], said["key"]), gateway, without_redis)


# Columns that reconciliation writes meanwhile while it checks due times and presence; and a spool's value before its
# last batch, which any repeated batch moves.
OF_RECONCILING = ("due_at", "changed_at", "seen", "watched", "next_check_at", "acknowledged_before")


# How far processes are.
PROGRESS = {"Cursor", "JoinToken", "LastRun", "Nonce", "OpenTrouble", "Seal", "SetBlindSpot", "SetCount", "StaleSet"}


def everything() -> dict[str, list[str]]:
    """All rows of all tables, save those that tell how far processes are."""
    rows = {}
    for model in apps.get_app_config("fleet").get_models():
        if model.__name__ not in PROGRESS:
            kept = [{name: row[name] for name in row if name not in OF_RECONCILING} for row in model.objects.values()]
            rows[model.__name__] = sorted(json.dumps(row, default=str, sort_keys=True) for row in kept)
    return rows


def unchanged_by(calls: list[Call], machines: Machines) -> None:
    """Sending these to the other process, several times, leaves every row as it was."""
    machines.settle(machines.one)
    machines.settle(machines.other)
    before = everything()
    for call in calls:
        assert call.sent(machines.other).status_code == 200
        # There it is known by now, as it is where it was sent first.
        assert call.sent(machines.other).status_code == 401
        assert call.sent(machines.one).status_code == 401
    witnesses = set(Machine.objects.values_list("pk", flat=True))
    machines.settle(machines.other)
    after = everything()
    new = set(Machine.objects.values_list("pk", flat=True)) - witnesses
    assert len(new) == 1
    # It names no set, so it has one of its own.
    sets = set(Machine.objects.filter(pk__in=new).values_list("availability_set_id", flat=True))
    for name, rows in after.items():
        told = [row for row in rows if row not in before[name]]
        gone = [row for row in before[name] if row not in rows]
        assert not gone, (name, gone)
        assert all(_of(row, sets if name == "AvailabilitySet" else new) for row in told), (name, told)


def _of(row: str, ids: set[int]) -> bool:
    return any(f'"{name}": {pk}' in row for pk in ids for name in ("id", "machine_id"))


@pytest.mark.long
def test_reports_heartbeats_and_held_calls_say_nothing_new(machines: Machines) -> None:
    document = {"body": '{"DocumentIncarnation": 1, "Events": []}', "incarnation": 1}
    document["hash"] = sha256(str(document["body"]).encode()).hexdigest()
    calls = [
        machines.reports(machines.report("document", document), ago=20),
        machines.reports(ago=15),
        machines.orders(ago=10),
        machines.reports(machines.report("coverage", {"of": "something"}), ago=5),
        machines.orders(),
    ]
    for call in calls:
        assert call.sent(machines.one).status_code == 200
    unchanged_by(calls, machines)


@pytest.mark.long
def test_replayed_call_does_not_make_a_silent_machine_live(machines: Machines) -> None:
    """A call of 25 seconds ago speaks of 25 seconds ago, wherever and however late it comes."""
    began = datetime.now(UTC)
    PresenceRow.objects.update(last_heard_at=began - timedelta(hours=1), last_poll_at=began - timedelta(hours=1))
    for call in (machines.reports(ago=25), machines.orders(ago=25)):
        assert call.sent(machines.one).status_code == 200
        assert call.sent(machines.other).status_code == 200
    machines.settle(machines.one)
    machines.settle(machines.other)
    row = machines.presence
    assert began - timedelta(seconds=26) < row.last_heard_at < began - timedelta(seconds=20)
    assert row.last_poll_at <= row.last_heard_at
    # Nor does its clock look wrong by it.
    assert row.clock_offset is None


@pytest.mark.long
def test_an_order_and_its_answer_count_once(machines: Machines) -> None:
    fleet = machines.fleet
    fleet.now = datetime.now(UTC)
    event = announced(fleet, event_id="0F3C2A6E-9B51-4C0B-8D0E-" + machines.key.machine_id[-12:].upper(),
                      resources=tuple(fleet.agents))  # fmt: skip
    approval = fleet.approve(event.event_id)
    advance.advance_approval(approval_id=approval.pk, now=datetime.now(UTC), via="celery")
    order = open_order(approval)
    assert order.machine.vm_id == machines.key.machine_id
    asks = machines.orders(ago=2)
    # Who has overheard it gets what the machine got, which is signed for that machine alone; the machine gets it, too.
    for gateway in (machines.one, machines.other):
        assert [one["id"] for one in asks.sent(gateway).json()["orders"]] == [str(order.pk)]
    assert [one["id"] for one in machines.orders().sent(machines.one).json()["orders"]] == [str(order.pk)]
    has = machines.orders(ago=1, held=f"{order.pk}:celery")
    assert has.sent(machines.one).status_code == 200
    wait_for(lambda: Order.objects.get(pk=order.pk).state == "DELIVERED", seconds=10, what="it is noted")
    receipt = {"order_id": str(order.pk), "event_id": event.event_id, "outcome": "answered", "azure_status": 200}
    receipt["attempted_at"] = datetime.now(UTC).isoformat()
    answers = machines.reports(machines.report("receipt", receipt))
    assert answers.sent(machines.one).status_code == 200
    assert Approval.objects.get(pk=approval.pk).state == "ACCEPTED"
    unchanged_by([has, answers], machines)


@pytest.mark.long
def test_enrolling_gives_a_key_once(machines: Machines) -> None:
    body = {"machine_id": machines.key.machine_id, "join_token": "", "keyed": True, "ask": "its own"}
    enrols = machines.call("POST", wire.ENROL_PATH, body)
    given = enrols.sent(machines.one)
    assert given.status_code == 200 and given.json()["key"]
    # Neither before the machine has used what it got, nor after.
    for gateway in (machines.other, machines.one, machines.other):
        again = enrols.sent(gateway)
        assert again.status_code == 401 and "used before" in again.json()["detail"], again.text
    machines.key = Key(machines.key.machine_id, given.json()["generation"], given.json()["key"])
    assert machines.reports().sent(machines.other).status_code == 200
    assert enrols.sent(machines.other).status_code == 401
