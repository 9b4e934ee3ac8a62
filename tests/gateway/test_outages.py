"""Presence and outages: contacts and clocks, locks and lost connections of the database."""

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests
from django.db import connection as django_connection

from fleet.domain.db_timeouts import ROLES
from fleet.embedded import Urls
from fleet.models import Observation, PresenceRow, ScheduledEvent
from fleet.operations.orders import sign
from tests.databases import execute
from tests.factories import listing, operator
from tests.gateway_process import Agent, Gateway, running_gateway
from tests.processes import answers, wait_for
from tests.rows import bearer

pytestmark = pytest.mark.real_time


def noted(agent: Agent, **columns: Any) -> PresenceRow:
    """Return the agent's presence once a contact with these columns is written."""
    rows = PresenceRow.objects.filter(machine__vm_id=agent.vm_id, **(columns or {"clock_offset__isnull": False}))
    return wait_for(rows.first, seconds=20, what="the contact is written")


def test_a_contact_is_written_within_seconds_with_what_it_does_about_signatures(gateway: Gateway) -> None:
    # The gateway first reads its keys for a call that states some; a call before that is not judged.
    agents = {state: gateway.agent() for state in ("no-key", "none", "strange-keys")}
    before = datetime.now(UTC)
    for agent, keys in zip(agents.values(), ({"signing_keys": []}, {}, {"signing_keys": ["made-up"]}), strict=True):
        agent.post(**keys)
        # This one says nothing of it.
        agent.orders(wait=0)
    for state, agent in agents.items():
        row = noted(agent, signatures=state)
        assert before <= row.last_heard_at <= datetime.now(UTC)
        assert abs((row.last_poll_at - before).total_seconds()) < 5 and abs(row.clock_offset) < 5


def test_a_rotated_key_is_not_mistaken_for_a_strange_one(gateway: Gateway) -> None:
    agent = gateway.agent()
    (key,) = sign.public_keys(now=datetime.now(UTC))
    # The gateway reads the keys, and keeps them for a while.
    agent.post(signing_keys=[key.id])
    noted(agent, signatures="checked")
    fresh = sign.rotate(overlap=timedelta(0), now=datetime.now(UTC))
    time.sleep(0.5)
    # An agent that got the new key from another process.
    agent.post(signing_keys=[fresh.key_id])
    noted(agent, signatures="checked", last_heard_at__gte=fresh.made_at)


def test_why_an_agent_gets_no_document_is_recorded(gateway: Gateway) -> None:
    agents = [gateway.agent(), gateway.agent()]

    def state(text: str) -> None:
        agents[0].orders(wait=0, metadata=text)
        agents[1].post(metadata=text)

    def recorded(problem: str, events_version: str) -> None:
        for agent in agents:
            noted(agent, poll_problem=problem, events_version=events_version, instance_version="2020-09-01")

    state("ok,2020-07-01,2020-09-01")
    recorded("ok", "2020-07-01")
    # An answer of 403 states no versions; those in use stay.
    state("status-403,,")
    recorded("status-403", "2020-07-01")
    # A text in another form counts as not stated.
    for text in ("", "status-999,,", "ok", "ok,2020-07-01,<b>", "ok,2020-07-01,2020-09-01,more", "\0,,", "x" * 5000):
        state(text)
    state("unreadable,2019-08-01,2020-09-01")
    recorded("unreadable", "2019-08-01")


def test_times_of_a_clock_that_is_a_day_off_are_corrected(gateway: Gateway) -> None:
    agent = gateway.agent()
    real = datetime.now(UTC)
    ahead = real + timedelta(days=1)
    report = agent.document(at=(ahead - timedelta(seconds=30)).isoformat())
    agent.post(report, sent_at=ahead.isoformat(), last_poll_at=(ahead - timedelta(seconds=5)).isoformat())
    row = Observation.objects.get(machine__vm_id=agent.vm_id)
    assert row.machine_at == ahead - timedelta(seconds=30)
    # How long the call was under way is all that the correction cannot know.
    assert abs((row.at - (real - timedelta(seconds=30))).total_seconds()) < 10
    contact = noted(agent)
    assert abs((contact.last_poll_at - (real - timedelta(seconds=5))).total_seconds()) < 10
    assert contact.clock_offset == pytest.approx(86400, abs=10)


def cut_connections(database: str) -> None:
    """Ends every connection of the database, as a restart of Postgres would."""
    name = database.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
            " AND application_name LIKE 'drydock%%'",
            [name],
        )
    # The test's own was among them.
    django_connection.close()


def test_cut_connection_is_replaced_silently(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent()
    for number in range(1, 4):
        assert agent.post(agent.document(incarnation=number)).json()["acknowledged"] == number
        cut_connections(servers.database)
    assert agent.post(agent.document(incarnation=9)).json()["acknowledged"] == 4
    assert requests.get(gateway.url + "/healthz", timeout=5).status_code == 200


def test_while_postgres_refuses_connections_agents_get_a_retry_answer(servers: Urls, folder: Path) -> None:
    name = servers.database.partition("?")[0].rpartition("/")[2]
    with running_gateway(servers, folder) as gateway:
        agent = gateway.agent()
        agent.post(agent.document())
        assert requests.get(gateway.url + "/readyz", timeout=5).status_code == 200
        execute("ALTER DATABASE {} ALLOW_CONNECTIONS false", name)
        try:
            with psycopg.connect(servers.database.replace(f"/{name}", "/postgres"), autocommit=True) as connection:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            with ThreadPoolExecutor(2) as pool:
                held = pool.submit(agent.orders, wait=6)
                answer = agent.post(agent.document(incarnation=2))
                assert (answer.status_code, answer.json()["type"]) == (503, "busy")
                assert int(answer.headers["retry-after"]) >= 1
                # An answer may be a second old.
                wait_for(lambda: answers(gateway.url + "/readyz", status=503), seconds=20, what="it is not ready")
                assert requests.get(gateway.url + "/healthz", timeout=5).status_code == 200
                time.sleep(2)
                execute("ALTER DATABASE {} ALLOW_CONNECTIONS true", name)
                assert held.result(20).json()["orders"] == []
        finally:
            execute("ALTER DATABASE {} ALLOW_CONNECTIONS true", name)
        agent.seq = 1
        assert agent.post(agent.document(incarnation=2)).json()["acknowledged"] == 2
        wait_for(lambda: answers(gateway.url + "/readyz"), seconds=10, what="ready again")
        # Logged once for each loop, not at each try.
        said = gateway.process.said()
        lines = [json.loads(line) for line in said.splitlines()]
        failing = Counter(line["loop"] for line in lines if line["event"] == "loop.failing")
        assert failing and max(failing.values()) <= 2
        assert "loop.recovered" in said


ONE = "10CCED00-0000-4000-8000-000000000002"


def test_decisions_about_a_locked_event_get_a_retry_answer_and_others_are_made(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent(availability_set="availability_set:locked")
    ids = [f"B01CCED0-0000-4000-8000-00000000000{number}" for number in range(3)]
    agent.post(agent.document(events=tuple(listing(one, resources=["vm"]) for one in ids))).raise_for_status()
    headers, reader = bearer(operator(), "approve"), bearer(operator(), "read")

    def claim() -> requests.Response:
        return requests.post(f"{gateway.url}/api/v1/events/{ids[1]}/claims/", json={}, headers=headers, timeout=30)

    def claim_all() -> list[int]:
        url, key = f"{gateway.url}/api/v1/bulk/claims/", headers | {"Idempotency-Key": "three"}
        answer = requests.post(url, json={"events": ids}, headers=key, timeout=30)
        return [one["status"] for one in answer.json()["results"]]

    with psycopg.connect(servers.database) as other, ThreadPoolExecutor() as pool:
        other.execute("SELECT 1 FROM fleet_scheduledevent WHERE event_id = %s FOR UPDATE", [ids[1]])
        began = time.monotonic()
        waiting = pool.submit(claim)
        assert requests.get(f"{gateway.url}/api/v1/events/", headers=reader, timeout=10).status_code == 200
        answer = waiting.result()
        assert ROLES["pages"].lock - 0.1 < time.monotonic() - began < 10
        assert (answer.status_code, answer.json()["type"], answer.headers["Retry-After"]) == (503, "busy", "2")
        assert "Another request is changing the same object. Nothing was changed: try again." in answer.json()["detail"]
        assert claim_all() == [201, 503, 201]
    assert claim_all() == [201, 201, 201]
    assert claim().status_code in (200, 201)


def test_one_locked_event_delays_no_report_and_no_order_of_the_others(gateway: Gateway, servers: Urls) -> None:
    agent = gateway.agent(availability_set="availability_set:one")
    event = listing(ONE, resources=["vm"])
    agent.post(agent.document(events=(event,))).raise_for_status()
    others = [gateway.agent(availability_set=f"availability_set:other{number}") for number in range(8)]
    waited: list[float] = []
    until = time.monotonic() + 3

    def report(other: Agent, number: int) -> None:
        mine = f"07E40000-0000-4000-8000-{number:012}"
        while time.monotonic() < until:
            for status in ("Scheduled", "Started"):
                began = time.monotonic()
                said = other.post(other.document(events=(listing(mine, status=status, resources=["vm"]),)))
                other.orders()
                waited.append(time.monotonic() - began)
                assert (said.status_code, said.json()["acknowledged"]) == (200, other.seq), said.text

    with psycopg.connect(servers.database) as lock, ThreadPoolExecutor(len(others)) as pool:
        lock.execute("SELECT 1 FROM fleet_scheduledevent WHERE event_id = %s FOR UPDATE", [ONE])
        running = [pool.submit(report, one, number) for number, one in enumerate(others)]
        while time.monotonic() < until:
            began = time.monotonic()
            said = agent.post(agent.document(events=({**event, "EventStatus": "Started"},)))
            assert (said.status_code, said.json()["acknowledged"], said.json()["refused"]) == (200, agent.seq, [])
            waited.append(time.monotonic() - began)
        for each in running:
            each.result()
        assert sorted(waited)[len(waited) // 2] < 1
        assert max(waited) < 2
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
