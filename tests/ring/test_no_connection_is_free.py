"""Another program uses up Postgres's connections: nothing is lost, and every process recovers without a restart."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import requests

from tests.gateway_process import Agent
from tests.processes import answers, wait_for
from tests.ring.ring import NAMES, Ring, ring_of_its_own

pytestmark = [pytest.mark.flow, pytest.mark.real_time, pytest.mark.long]

BACKEND = ("web", "worker", "beat")
AGENTS = tuple(f"agent-{name}" for name in NAMES)
FREEZE = {"set": "west", "type": "Freeze", "notice_seconds": 895, "duration_seconds": 5, "started_seconds": 600}
# Longer than Celery and the loops of the gateway pause between tries.
LIMIT_SECONDS = 15.0


class Hog:
    """A program that opens every connection it gets."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connections = [psycopg.connect(url, autocommit=True)]

    def fill(self) -> bool:
        """Take each free connection and end those of Drydock; return whether Drydock has none."""
        try:
            while True:
                self.connections.append(psycopg.connect(self.url, autocommit=True))
        except psycopg.OperationalError as error:
            assert "too many clients" in str(error)
        ended = self.connections[0].execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'drydock%'"
        )
        return ended.rowcount == 0

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


@contextmanager
def no_connection_is_free(url: str) -> Iterator[None]:
    hog = Hog(url)
    try:
        for _ in range(3):
            wait_for(hog.fill, seconds=60, what="no process of Drydock has a connection")
        yield
    finally:
        hog.close()


def refused(it: Ring, agent: Agent, browser: requests.Session) -> None:
    """Each door answers at once that it cannot do it now, and when to try again."""
    page = browser.get(f"{it.url}/", timeout=20)
    call = it.call("GET", "events/", timeout=20)
    report = agent.post(agent.document())
    for answer in (page, call, report):
        assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (503, True), answer.text
    assert call.json()["type"] == report.json()["type"] == "busy"
    # Why, in words, for those who read them.
    assert "all connections are in use" in page.text and "all connections are in use" in call.json()["detail"]
    assert answers(f"{it.url}/healthz")


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Ring]:
    with ring_of_its_own(tmp_path) as ring:
        yield ring


def test_without_a_free_connection_nothing_is_lost_and_all_recovers(it: Ring) -> None:
    agent = Agent.enrolled(it.url, it.join_token, availability_set="others")
    agent.post(agent.document()).raise_for_status()
    before = it.simulator.events.create(**{**FREEZE, "resources": [NAMES[0]]})
    it.event_when(before, "SCHEDULED")
    it.seen_by(before, 3)
    browser = it.logged_in()
    pids = {name: it.processes[name].pid for name in BACKEND}
    # Approved, and no machine is there to which the order could be relayed.
    it.kill(*AGENTS)
    approval = it.approve(before)
    with no_connection_is_free(it.urls.database):
        it.start(*AGENTS)
        began = time.monotonic()
        after = it.simulator.events.create(**{**FREEZE, "resources": [NAMES[1]]})
        refused(it, agent, browser)
        wait_for(lambda: answers(f"{it.url}/readyz", status=503), seconds=20, what="it is not ready")
        assert requests.get(f"{it.url}/readyz", timeout=10).json()["database"] == "no connection free"
        time.sleep(max(began + LIMIT_SECONDS - time.monotonic(), 0))
        refused(it, agent, browser)
        assert not it.starts()
    wait_for(lambda: answers(f"{it.url}/readyz"), seconds=30, what="it is ready")
    agent.seq -= 2
    assert agent.post(agent.document(), agent.document()).json()["acknowledged"] == agent.seq
    it.approval_when(approval["id"], "CONFIRMED")
    it.event_when(after, "SCHEDULED")
    it.seen_by(after, 3)
    assert len(it.starts()) == 1
    assert {name: it.processes[name].pid for name in BACKEND} == pids

    def reconciled_by() -> str:
        with psycopg.connect(it.urls.database) as connection:
            row = connection.execute("SELECT via FROM fleet_sweep WHERE name = 'relay'").fetchone()
        return str(row and row[0])

    wait_for(lambda: reconciled_by() == "beat", seconds=60, what="beat and worker reconcile again")
    ready = requests.get(f"{it.url}/readyz", timeout=10).json()
    assert (ready["status"], ready["database"]) == ("ok", "ok")
