"""Revoked machines: every gateway process cuts a stolen credential off, with and without Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from django.utils import timezone

from fleet.domain.actor import COMMAND_LINE
from fleet.models import Admission, Machine, Observation
from fleet.operations.machines import admissions, keys
from tests.gateway.enrolment import Doors
from tests.gateway_process import Agent, Gateway, running_gateway
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


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
        keys.revoke(machine_id=machine.pk, actor=COMMAND_LINE, now=timezone.now())
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
    gateway: Gateway, doors: Doors, without_redis: Gateway, folder: Path
) -> None:
    rounds = []
    for _ in range(3):
        agent = gateway.agent()
        rounds.append(cut_off([agent, replace(agent, url=doors.gateway.url)]))
    with running_gateway(without_redis.urls, folder) as other:
        alone = []
        for _ in range(3):
            agent = without_redis.agent()
            alone.append(cut_off([agent, replace(agent, url=other.url)]))
    # Measured: 10 to 120 ms with Redis, 0.6 to 0.8 s without; a cached credential alone would live for ten minutes.
    assert min(off for off, _ in rounds) < 0.5, rounds
    assert max(max(pair) for pair in alone) < 5, alone


def test_its_join_token_does_not_bring_it_back(gateway: Gateway) -> None:
    agent = gateway.agent()
    machine = Machine.objects.get(vm_id=agent.vm_id)
    keys.revoke(machine_id=machine.pk, actor=COMMAND_LINE, now=timezone.now())
    wait_for(lambda: agent.post().status_code == 401, seconds=10, what="it is cut off")
    with pytest.raises(AssertionError, match="admission-pending"):
        gateway.agent(machine_id=agent.vm_id)
    waits = Admission.objects.get(machine=machine)
    admissions.admit(ids=[waits.pk], actor=COMMAND_LINE, now=timezone.now())
    assert gateway.agent(machine_id=agent.vm_id).post().status_code == 200


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
