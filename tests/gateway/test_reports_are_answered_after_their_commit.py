from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from fleet.embedded import Urls
from fleet.models import DocumentBody, LatestDocument, Machine, Observation
from tests.gateway_process import Agent, Gateway, running_gateway

pytestmark = pytest.mark.flow


def observed(agent: Agent) -> list[int]:
    rows = Observation.objects.filter(machine__vm_id=agent.vm_id).order_by("epoch", "seq")
    return list(rows.values_list("seq", flat=True))


def test_what_is_acknowledged_is_in_the_database(gateway: Gateway) -> None:
    agent = gateway.agent()
    said = agent.post(agent.document(incarnation=1), agent.document(incarnation=2)).json()
    assert (said["acknowledged"], said["refused"], said["orders"]) == (2, [], [])
    assert observed(agent) == [1, 2]
    assert LatestDocument.objects.get(machine__vm_id=agent.vm_id).incarnation == 2


def test_a_repeated_batch_changes_nothing(gateway: Gateway) -> None:
    agent = gateway.agent()
    batch = [agent.document(incarnation=number) for number in range(3)]
    answers = [agent.post(*batch).json()["acknowledged"] for _ in range(3)]
    assert answers == [3, 3, 3]
    assert observed(agent) == [1, 2, 3]


def test_one_body_is_kept_once_for_all_machines(gateway: Gateway) -> None:
    agents = [gateway.agent() for _ in range(3)]
    reports = [agent.document(incarnation=77) for agent in agents]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda pair: pair[0].post(pair[1]).json(), zip(agents, reports, strict=True)))
    assert [said["acknowledged"] for said in answers] == [1, 1, 1]
    assert DocumentBody.objects.filter(hash=reports[0]["data"]["hash"]).count() == 1


def test_an_empty_batch_is_a_heartbeat(gateway: Gateway) -> None:
    agent = gateway.agent()
    assert agent.post().json()["acknowledged"] == 0
    agent.post(agent.document())
    assert agent.post().json()["acknowledged"] == 1


def test_a_new_spool_begins_a_new_epoch(gateway: Gateway) -> None:
    first = gateway.agent()
    first.post(first.document(incarnation=1))
    second = Agent(first.url, first.credential, first.vm_id)
    assert second.post(second.document(incarnation=2)).json()["acknowledged"] == 1
    machine = Machine.objects.get(vm_id=first.vm_id)
    assert list(machine.observations.order_by("epoch").values_list("epoch", "seq")) == [(1, 1), (2, 1)]


def deliver_until_cut(agent: Agent) -> int:
    """Deliver one document after the other until the gateway is gone; the last number it acknowledged."""
    acknowledged = 0
    while True:
        try:
            answer = agent.post(agent.document(incarnation=agent.seq))
        except requests.RequestException:
            return acknowledged
        if answer.status_code == 200:
            acknowledged = answer.json()["acknowledged"]


@pytest.mark.real_time
def test_kill_9_loses_nothing_that_was_acknowledged(servers: Urls, folder: Path) -> None:
    with running_gateway(servers, folder) as gateway, ThreadPoolExecutor(8) as pool:
        agents = [gateway.agent() for _ in range(8)]
        calls = [pool.submit(deliver_until_cut, agent) for agent in agents]
        while sum(agent.seq for agent in agents) < 400:
            assert not any(call.done() for call in calls)
        os.kill(gateway.worker, signal.SIGKILL)
        gateway.process.kill()
        acknowledged = [call.result(30) for call in calls]
    assert min(acknowledged) > 0
    for agent, upto in zip(agents, acknowledged, strict=True):
        assert observed(agent)[:upto] == list(range(1, upto + 1))
    with running_gateway(servers, folder) as again:
        for agent, upto in zip(agents, acknowledged, strict=True):
            agent.url = again.url
            lost = [{**agent.document(incarnation=seq), "seq": seq} for seq in range(upto + 1, upto + 4)]
            assert agent.post(*lost).json()["acknowledged"] == upto + 3
            assert observed(agent) == list(range(1, upto + 4))
