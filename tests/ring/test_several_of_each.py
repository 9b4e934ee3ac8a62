"""Three web processes behind the proxy of docker-compose.yml, two workers, two beats, real agents: one installation."""

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from psycopg.rows import dict_row

from fleet.domain.db_timeouts import NAME
from fleet.management import demo_recipes as recipes
from fleet.management import supervisor
from fleet.management.supervisor import Recipe
from tests.databases import own_servers
from tests.gateway.test_streams import events
from tests.gateway_process import Agent
from tests.nginx import of_compose, running_nginx
from tests.processes import ROOT, answers, free_port, manage, wait_for
from tests.ring.ring import ASK_EVERY, MIGRATION, NAMES, Ring, ring

pytestmark = [pytest.mark.flow, pytest.mark.real_time, pytest.mark.long]

WEBS = ("web-1", "web-2", "web-3")
CELERY = ("worker-1", "worker-2", "beat-1", "beat-2")
LOAD = 6


class Several:
    """A ring of which each part but the agents is there more than once; `it` knows the proxy only."""

    def __init__(self, it: Ring) -> None:
        self.it = it
        self.ports = {name: free_port() for name in WEBS}
        made = {name: recipes.web(port) for name, port in self.ports.items()}
        for name in CELERY:
            kind, _, number = name.partition("-")
            more = ["--hostname", f"celery@{number}", "--loglevel", "INFO"]
            words = supervisor.worker(more=more) if kind == "worker" else supervisor.BEAT
            made[name] = Recipe(name=name, command=[*recipes.CELERY, *words])
        for alone in ("web", "worker", "beat"):
            del it.recipes[alone]
        it.recipes |= made

    def at(self, name: str, path: str, method: str = "GET", **options: Any) -> requests.Response:
        """A call of one process, past the proxy."""
        options.setdefault("headers", {"Authorization": f"Bearer {self.it.people['operator']['token']}"})
        options.setdefault("timeout", 20)
        return requests.request(method, f"http://127.0.0.1:{self.ports[name]}{path}", **options)

    def answering(self, name: str) -> None:
        """Returns once a process can serve."""
        address = f"http://127.0.0.1:{self.ports[name]}/readyz"
        wait_for(lambda: answers(address), seconds=90, what=f"{name} answers", every=ASK_EVERY)

    def held(self, name: str) -> int:
        """How many calls of agents a process holds."""
        found = re.search(r"^drydock_held_calls (\S+)$", self.at(name, "/metrics").text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def asked(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.it.urls.database, row_factory=dict_row) as connection:
            return connection.execute(statement, values).fetchall()

    def announced(self) -> str:
        """An event that every machine lists."""
        event_id = self.it.simulator.events.create(**{**MIGRATION, "started_seconds": 1})
        self.it.seen_by(event_id, len(NAMES))
        return event_id


@pytest.fixture(scope="module")
def made(migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    folder = tmp_path_factory.mktemp("several")
    with own_servers(migrated_template, folder) as urls, ring(urls, folder) as it:
        made = Several(it)
        addresses = [f"127.0.0.1:{port}" for port in made.ports.values()]
        with running_nginx(of_compose(folder, addresses, it.port), folder, it.port):
            it.start(*WEBS, *CELERY)
            for name in WEBS:
                made.answering(name)
            it.start(*(f"agent-{machine}" for machine in NAMES))
            it.all_live(len(NAMES))
            yield made
            it.stop()


@pytest.fixture
def several(made: Several) -> Several:
    """All of them, each part of which runs."""
    gone = [name for name in WEBS if name not in made.it.processes]
    made.it.start(*gone) if gone else None
    for name in gone:
        made.answering(name)
    return made


def approved_at(several: Several, name: str) -> Any:
    """An event that is approved at this process, and goes all the way; its approval."""
    it, event_id = several.it, several.announced()
    made = several.at(name, f"/api/v1/events/{event_id}/approvals/", "POST", json={"comment": "agreed"})
    assert made.status_code == 201, made.text
    others = [other for other in WEBS if other != name and other in it.processes]
    # A user who queries another process a moment later sees the approval.
    for other in others:
        assert several.at(other, f"/api/v1/events/{event_id}/").json()["approval"]["id"] == made.json()["id"]
    found = it.approval_when(made.json()["id"], "CONFIRMED")
    it.event_when(event_id, "ENDED")
    return found


def test_what_is_clicked_at_one_process_reaches_the_agent_that_another_holds(several: Several) -> None:
    # The same machine is asked each time, and one process holds it: at least one click was elsewhere.
    for name in WEBS[:2]:
        (order,) = approved_at(several, name)["orders"]
        assert order["machine"]["resource_name"] == "WestNO_0"


def test_no_process_needs_to_see_a_browser_again(several: Several, product_passwords: None) -> None:
    it = several.it
    browser = it.logged_in()
    for name in WEBS:
        address = f"http://127.0.0.1:{several.ports[name]}"
        assert browser.get(f"{address}/", timeout=20, allow_redirects=False).status_code == 200
    # A form of one, sent to another, with the token that a third has made.
    event_id = several.announced()
    page = browser.get(f"http://127.0.0.1:{several.ports['web-1']}/events/{event_id}/", timeout=20)
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token is not None
    address = f"http://127.0.0.1:{several.ports['web-2']}"
    said = browser.post(
        f"{address}/events/{event_id}/claim/",
        data={"csrfmiddlewaretoken": token[1]},
        headers={"Referer": f"{address}/"},
        timeout=20,
    )
    assert said.status_code == 200, said.text[:300]
    assert it.get(f"events/{event_id}/")["claim"] is not None
    # A place in a list, made by one and read by another.
    first = several.at("web-1", "/api/v1/machines/?page_size=1").json()
    second = several.at("web-3", urlsplit(first["next"])._replace(scheme="", netloc="").geturl()).json()
    assert first["results"][0]["id"] != second["results"][0]["id"]
    # A key of one, repeated at another.
    keyed = {"Authorization": f"Bearer {it.people['operator']['token']}", "Idempotency-Key": "once"}
    both = [
        several.at(name, f"/api/v1/events/{event_id}/holds/", "POST", json={"reason": "a look first"}, headers=keyed)
        for name in WEBS[:2]
    ]
    assert [one.status_code for one in both] == [201, 201]
    assert both[1].headers["Idempotency-Replayed"] == "true"
    it.simulator.events.cancel(event_id)
    it.event_when(event_id, "ENDED")


def test_stream_continues_at_another_process_without_gap_or_repeat(several: Several) -> None:
    it = several.it

    def listened(name: str, after: str, wanted: str) -> list[str]:
        """The ids that a process tells behind this one, up to the entry about a machine; it is asked as browsers do,
        which come again when a stream ends.
        """
        told: list[str] = []
        while True:
            headers = {"Authorization": f"Bearer {it.people['operator']['token']}"}
            headers["Last-Event-ID"] = told[-1] if told else after
            with closing(several.at(name, "/api/v1/stream", headers=headers, stream=True)) as answer:
                for event in events(answer):
                    assert event["event"] != "reset", event
                    told += [event["id"]] if event["event"] == "changed" else []
                    if wanted in event["data"]:
                        return told

    (start,) = several.asked("SELECT xid, id FROM fleet_entry ORDER BY xid DESC, id DESC LIMIT 1")
    position = f"{start['xid']}.{start['id']}"
    told: list[str] = []
    for number, name in enumerate((*WEBS, *WEBS)):
        Agent.enrolled(it.url, it.join_token, resource_name=f"news-{number}")
        told += listened(name, position, f"news-{number}")
        position = told[-1]
    rows = several.asked(
        "SELECT xid, id FROM fleet_entry WHERE (xid, id) > (%s, %s) AND (xid, id) <= (%s, %s) ORDER BY xid, id",
        *start.values(),
        *map(int, position.split(".")),
    )
    assert told == [f"{row['xid']}.{row['id']}" for row in rows]


class Load:
    """Machines that report document by document, as agents do: again and again the same until it is acknowledged."""

    def __init__(self, several: Several) -> None:
        self.agents = [Agent.enrolled(several.it.url, several.it.join_token) for _ in range(LOAD)]
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(LOAD)
        self._runs = [self._pool.submit(self._report, agent) for agent in self.agents]

    def _report(self, agent: Agent) -> None:
        while not self._stopped.wait(0.05):
            report = agent.document(incarnation=agent.seq + 1)
            while True:
                with suppress(requests.RequestException):
                    said = agent.post(report)
                    if said.status_code == 200:
                        assert said.json()["acknowledged"] == agent.seq
                        break
                time.sleep(0.2)

    def end(self) -> int:
        """How many reports were acknowledged."""
        self._stopped.set()
        for run in self._runs:
            run.result(60)
        self._pool.shutdown()
        return sum(agent.seq for agent in self.agents)


def test_one_is_killed_under_load_and_the_others_carry_on(several: Several) -> None:
    it, load = several.it, Load(several)
    victim = max(WEBS, key=several.held)
    others = [name for name in WEBS if name != victim]
    wait_for(lambda: min(agent.seq for agent in load.agents) > 5, seconds=30, what="everybody has reported")
    it.kill(victim)
    wait_for(lambda: sum(map(several.held, others)) >= len(NAMES), seconds=60, what="agents are held by the others")
    approved_at(several, others[0])
    it.start(victim)
    several.answering(victim)
    # And one that is asked to end, still under load.
    assert it.processes.pop(others[1]).stop(seconds=20) == 0
    approved_at(several, victim)
    it.start(others[1])
    acknowledged = load.end()
    machines = [agent.vm_id for agent in load.agents]
    (kept,) = several.asked(
        "SELECT count(*) AS rows, count(DISTINCT (o.machine_id, o.epoch, o.seq)) AS different FROM fleet_observation o"
        " JOIN fleet_machine m ON m.id = o.machine_id WHERE m.vm_id = ANY(%s)",
        machines,
    )
    assert kept == {"rows": acknowledged, "different": acknowledged}
    several.answering(others[1])


def test_one_beat_and_one_worker_are_killed_and_the_others_do_their_jobs(several: Several) -> None:
    it = several.it

    def ran(name: str) -> Any:
        """When this job ran last by Celery."""
        rows = several.asked("SELECT ran_at FROM fleet_sweep WHERE name = %s AND via IN ('beat', 'celery')", name)
        return rows[0]["ran_at"] if rows else None

    it.kill("beat-1", "worker-1")
    for name in ("relay", "router"):
        before = wait_for(partial(ran, name), seconds=30, what=f"{name} ran by Celery", every=ASK_EVERY)
        wait_for(lambda: (ran(name) or before) > before, seconds=60, what=f"{name} runs again", every=ASK_EVERY)  # noqa: B023
    approved_at(several, "web-1")
    it.start("beat-1", "worker-1")


def test_nothing_was_done_twice(several: Several) -> None:
    it = several.it
    posts = [json.loads(post["body"])["StartRequests"][0]["EventId"] for post in it.starts() if post["status"] == 200]
    assert len(posts) == len(set(posts)) >= 4
    once = ("approval_granted", "order_answered", "approval_accepted", "event_started", "approval_confirmed")
    counted = several.asked(
        "SELECT event_id, kind, count(*) AS entries FROM fleet_entry"
        " WHERE kind = ANY(%s) AND event_id IN (SELECT id FROM fleet_scheduledevent WHERE event_id = ANY(%s))"
        " GROUP BY 1, 2",
        list(once),
        posts,
    )
    assert len(counted) == len(once) * len(posts)
    assert {row["entries"] for row in counted} == {1}
    # Each seal continues where the one before ended.
    wait_for(lambda: several.asked("SELECT number FROM fleet_seal"), seconds=90, what="the timeline is sealed")
    assert manage("verify_audit", environment=it.environment)


def test_each_process_opens_no_more_connections_than_it_says_and_the_page_says_the_same(several: Several) -> None:
    page = (ROOT / "docs" / "admin" / "scale.md").read_text(encoding="utf-8").partition("## Connections to Postgres")[2]
    documented = re.findall(r"^\| (web|worker|beat) \| (?:19 and its `--concurrency`, )?(\d+)", page, re.MULTILINE)
    # A worker that has nothing to do may have none for a moment.
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()

    def all_seen() -> bool:
        rows = several.asked(
            "SELECT application_name AS name, count(*) AS open FROM pg_stat_activity"
            " WHERE datname = current_database() GROUP BY 1"
        )
        for row in rows:
            match = NAME.fullmatch(row["name"])
            if match is not None:
                assert row["open"] <= int(match["most"]), row
                seen.add((match["kind"], match["most"]))
                names.add(row["name"])
        return seen >= set(documented) and len(names) >= len(WEBS) + 2

    wait_for(all_seen, seconds=30, what="a connection of each process", every=ASK_EVERY)
    assert seen == set(documented)
