"""Database locks: a locked row or table delays a caller that needs it by two seconds, and no other caller."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest
import requests

from fleet.domain.db_timeouts import ROLES
from fleet.embedded import Urls
from fleet.models import PresenceRow, ScheduledEvent
from tests.factories import listing, operator
from tests.gateway.test_streams import token_of
from tests.gateway_process import Agent, Gateway
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]
EVENT = "10CCED00-0000-4000-8000-000000000001"
ONE = "10CCED00-0000-4000-8000-000000000002"


def test_decision_about_a_locked_event_gets_a_retry_answer(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent(availability_set="availability_set:locked")
    agent.post(agent.document(events=(listing(EVENT, resources=["vm"]),))).raise_for_status()
    otto = operator()
    headers = {"Authorization": f"Bearer {token_of(otto, 'approve')}"}
    reader = {"Authorization": f"Bearer {token_of(otto, 'read')}"}

    def claim() -> requests.Response:
        return requests.post(f"{gateway.url}/api/v1/events/{EVENT}/claims/", json={}, headers=headers, timeout=30)

    with psycopg.connect(servers.database) as other, ThreadPoolExecutor() as pool:
        other.execute("SELECT 1 FROM fleet_scheduledevent WHERE event_id = %s FOR UPDATE", [EVENT])
        began = time.monotonic()
        waiting = pool.submit(claim)
        assert requests.get(f"{gateway.url}/api/v1/events/", headers=reader, timeout=10).status_code == 200
        answer = waiting.result()
        assert ROLES["pages"].lock - 0.1 < time.monotonic() - began < 10
        assert (answer.status_code, answer.json()["type"], answer.headers["Retry-After"]) == (503, "busy", "2")
        assert "Another request is changing the same object. Nothing was changed: try again." in answer.json()["detail"]
    assert claim().status_code in (200, 201)


def test_bulk_call_gets_a_retry_answer_for_the_locked_event_only(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent(availability_set="availability_set:bulk")
    ids = [f"B01CCED0-0000-4000-8000-00000000000{number}" for number in range(3)]
    agent.post(agent.document(events=tuple(listing(one, resources=["vm"]) for one in ids))).raise_for_status()
    headers = {"Authorization": f"Bearer {token_of(operator(), 'approve')}", "Idempotency-Key": "three"}

    def claim() -> list[int]:
        answer = requests.post(f"{gateway.url}/api/v1/bulk/claims/", json={"events": ids}, headers=headers, timeout=30)
        return [one["status"] for one in answer.json()["results"]]

    with psycopg.connect(servers.database) as other:
        other.execute("SELECT 1 FROM fleet_scheduledevent WHERE event_id = %s FOR UPDATE", [ids[1]])
        assert claim() == [201, 503, 201]
    assert claim() == [201, 201, 201]


class Others:
    """Machines that report one after the other, each about an event of its own, and ask for orders; how long each had
    to wait.
    """

    def __init__(self, gateway: Gateway, count: int) -> None:
        self.agents = [gateway.agent(availability_set=f"availability_set:other{number}") for number in range(count)]
        self.waited: list[float] = []
        self.until = 0.0

    def report(self, agent: Agent, number: int) -> None:
        event = f"07E40000-0000-4000-8000-{number:012}"
        while time.monotonic() < self.until:
            for status in ("Scheduled", "Started"):
                began = time.monotonic()
                said = agent.post(agent.document(events=(listing(event, status=status, resources=["vm"]),)))
                agent.orders()
                self.waited.append(time.monotonic() - began)
                assert (said.status_code, said.json()["acknowledged"]) == (200, agent.seq), said.text


def test_one_locked_event_delays_no_report_and_no_order_of_the_others(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent(availability_set="availability_set:one")
    event = listing(ONE, resources=["vm"])
    agent.post(agent.document(events=(event,))).raise_for_status()
    others = Others(gateway, 8)
    with psycopg.connect(servers.database) as other, ThreadPoolExecutor(len(others.agents)) as pool:
        other.execute("SELECT 1 FROM fleet_scheduledevent WHERE event_id = %s FOR UPDATE", [ONE])
        others.until = time.monotonic() + 3
        running = [pool.submit(others.report, one, number) for number, one in enumerate(others.agents)]
        while time.monotonic() < others.until:
            began = time.monotonic()
            said = agent.post(agent.document(events=({**event, "EventStatus": "Started"},)))
            assert (said.status_code, said.json()["acknowledged"], said.json()["refused"]) == (200, agent.seq, [])
            others.waited.append(time.monotonic() - began)
        for each in running:
            each.result()
        assert sorted(others.waited)[len(others.waited) // 2] < 1
        assert max(others.waited) < 2
        assert ScheduledEvent.objects.get(event_id=ONE).status == "SCHEDULED"
    wait_for(lambda: ScheduledEvent.objects.get(event_id=ONE).status == "STARTED", seconds=10, what="it is caught up")


def test_a_locked_machine_or_presence_waits_alone(gateway: Gateway, servers: Urls) -> None:
    agent, friend = gateway.agent(), gateway.agent()
    for each in (agent, friend):
        each.post(each.document()).raise_for_status()

    def heard(one: Agent) -> datetime | None:
        return PresenceRow.objects.values_list("last_heard_at", flat=True).get(machine__vm_id=one.vm_id)

    wait_for(lambda: heard(agent) and heard(friend), seconds=10, what="both are known")
    with psycopg.connect(servers.database) as other:
        other.execute("SELECT 1 FROM fleet_machine WHERE vm_id = %s FOR UPDATE", [agent.vm_id])
        other.execute(
            "SELECT 1 FROM fleet_presencerow JOIN fleet_machine ON fleet_machine.id = machine_id WHERE vm_id = %s"
            " FOR UPDATE",
            [agent.vm_id],
        )
        answer = agent.post(agent.document())
        assert (answer.status_code, answer.json()["type"]) == (503, "busy")
        assert "Another request is changing the same object" in answer.json()["detail"]
        began = datetime.now(UTC)
        assert friend.post(friend.document()).status_code == 200
        wait_for(lambda: (heard(friend) or began) > began, seconds=10, what="the friend's contact is written")
    agent.seq -= 1
    assert agent.post(agent.document()).status_code == 200


def test_a_page_says_try_again_instead_of_failing(gateway: Gateway, servers: Urls) -> None:
    page = requests.get(f"{gateway.url}/accounts/login/", timeout=10)
    fields = {"login": "nobody", "password": "guess", "csrfmiddlewaretoken": page.cookies["drydock_csrf"]}

    def log_in() -> requests.Response:
        return requests.post(f"{gateway.url}/accounts/login/", data=fields, cookies=page.cookies, timeout=30)

    with psycopg.connect(servers.database) as other:
        other.execute("LOCK TABLE fleet_loginattempts IN ACCESS EXCLUSIVE MODE")
        answer = log_in()
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "2"
        assert "Try again in a moment" in answer.text
    assert log_in().status_code == 200
