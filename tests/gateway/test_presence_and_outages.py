from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import requests
from django.db import connection as django_connection

from fleet.embedded import Urls
from fleet.models import Observation, PresenceRow, QuarantinedRow
from tests.databases import execute
from tests.gateway_process import Agent, Gateway, running_gateway
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


def presence_of(agent: Agent) -> PresenceRow | None:
    return PresenceRow.objects.filter(machine__vm_id=agent.vm_id, clock_offset__isnull=False).first()


def noted(agent: Agent) -> PresenceRow:
    return wait_for(lambda: presence_of(agent), seconds=20, what="the contact is written")


def test_a_contact_is_written_within_seconds(gateway: Gateway) -> None:
    agent = gateway.agent()
    before = datetime.now(UTC)
    agent.post()
    row = noted(agent)
    assert row.last_heard_at is not None
    assert row.last_poll_at is not None
    assert before <= row.last_heard_at <= datetime.now(UTC)
    assert abs((row.last_poll_at - before).total_seconds()) < 5
    assert row.clock_offset is not None
    assert abs(row.clock_offset) < 5


def test_what_it_does_about_signatures_is_noted(gateway: Gateway) -> None:
    agents = [gateway.agent() for _ in range(3)]
    for agent, keys in zip(agents, ({}, {"signing_keys": []}, {"signing_keys": ["made-up"]}), strict=True):
        agent.post(**keys)
        # This one says nothing of it.
        agent.orders(wait=0)
    for agent, said in zip(agents, ("none", "no-key", "strange-keys"), strict=True):
        wait_for(
            lambda agent=agent: PresenceRow.objects.exclude(signatures="").filter(machine__vm_id=agent.vm_id).first(),
            seconds=20,
            what="the contact is written",
        )
        assert PresenceRow.objects.get(machine__vm_id=agent.vm_id).signatures == said


def test_a_held_call_is_a_contact_too(gateway: Gateway) -> None:
    agent = gateway.agent()
    agent.orders(wait=0)
    assert noted(agent).last_poll_at is not None


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
    assert contact.last_poll_at is not None
    assert abs((contact.last_poll_at - (real - timedelta(seconds=5))).total_seconds()) < 10
    assert contact.clock_offset == pytest.approx(86400, abs=10)


def test_a_clock_within_the_tolerance_is_left_alone(gateway: Gateway) -> None:
    agent = gateway.agent()
    real = datetime.now(UTC)
    agent.post(agent.document(at=real.isoformat()), sent_at=(real + timedelta(seconds=1.5)).isoformat())
    assert Observation.objects.get(machine__vm_id=agent.vm_id).at == real


def test_a_poll_in_the_future_counts_as_now(gateway: Gateway) -> None:
    agent = gateway.agent()
    real = datetime.now(UTC)
    agent.post(sent_at=real.isoformat(), last_poll_at=(real + timedelta(hours=3)).isoformat())
    contact = noted(agent)
    assert contact.last_poll_at is not None
    assert contact.last_poll_at <= datetime.now(UTC)


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
                wait_for(
                    lambda: requests.get(gateway.url + "/readyz", timeout=20).status_code == 503,
                    seconds=20,
                    what="it is not ready",
                )
                assert requests.get(gateway.url + "/healthz", timeout=5).status_code == 200
                time.sleep(2)
                execute("ALTER DATABASE {} ALLOW_CONNECTIONS true", name)
                assert held.result(20).json()["orders"] == []
        finally:
            execute("ALTER DATABASE {} ALLOW_CONNECTIONS true", name)
        agent.seq = 1
        assert agent.post(agent.document(incarnation=2)).json()["acknowledged"] == 2
        wait_for(
            lambda: requests.get(gateway.url + "/readyz", timeout=20).status_code == 200, seconds=10, what="ready again"
        )
        # Logged once for each loop, not at each try.
        said = gateway.process.said()
        lines = [json.loads(line) for line in said.splitlines()]
        failing = Counter(line["loop"] for line in lines if line["event"] == "loop.failing")
        assert failing and max(failing.values()) <= 2
        assert "loop.recovered" in said


def test_quarantined_rows_are_counted_in_readyz_without_failing_it(gateway: Gateway) -> None:
    now = datetime.now(UTC)
    rows = [("event", 2**40), ("event", 2**40 + 1), ("wave", 2**40)]
    for what, row_id in rows:
        QuarantinedRow.objects.create(what=what, row_id=row_id, since=now, reason="played", next_try_at=now)

    def becomes(aside: dict[str, int] | None) -> bool:
        answer = requests.get(f"{gateway.url}/readyz", timeout=10)
        return (answer.status_code, answer.json().get("quarantined")) == (200, aside)

    # An answer may be a second old.
    wait_for(lambda: becomes({"event": 2, "wave": 1}), seconds=20, what="they are counted", every=0.2)
    QuarantinedRow.objects.filter(row_id__gte=2**40).delete()
    wait_for(lambda: becomes(None), seconds=20, what="they are over", every=0.2)
