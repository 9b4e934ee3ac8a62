"""The whole ring in real processes: simulated Azure, agents, gateway with pages, Celery worker and beat."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
from azure_simulator.child_process import RunningSimulator
from django.conf import settings

from fleet.embedded import Urls, valkey_server
from fleet.management import demo_recipes as recipes
from fleet.management.supervisor import Recipe
from tests import restoring
from tests.agent.agents import end_events, fleet_of
from tests.processes import ROOT, Process, answers, free_port, manage, start, wait_for

# The two machines of the documented live migration, and one more of their set.
NAMES = ("WestNO_0", "WestNO_1", "WestNO_2")
# As Microsoft documents it.
MIGRATION = {
    "set": "west",
    "type": "Freeze",
    "resources": ["WestNO_0", "WestNO_1"],
    "notice_seconds": 895,
    "duration_seconds": 5,
    "source": "Platform",
    "description": "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
    "started_seconds": 3,
}


def fleet_file(folder: Path, **sets: Sequence[str]) -> Path:
    """A fleet of availability sets, by default `west` alone, each over as many fault domains as it has machines."""
    ids = {
        name: {machine: f"00000000-0000-4000-8000-0000000000{number}{index}" for index, machine in enumerate(machines)}
        for number, (name, machines) in enumerate((sets or {"west": NAMES}).items())
    }
    path = folder / "fleet.json"
    path.write_text(json.dumps(fleet_of(**ids)))
    return path


# The gateway that is asked shares its processor with everybody else of the ring.
ASK_EVERY = 0.1


class Ring:
    """Starts and stops its parts by name: `web`, `worker`, `beat`, `agent-<machine>`; talks to it as people do."""

    def __init__(
        self, urls: Urls, folder: Path, simulator: RunningSimulator, fleet: Path, caches: Sequence[str] = ()
    ) -> None:
        self.urls = urls
        self.folder = folder
        self.simulator = simulator
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **urls.environment,
            "SECRET_KEY": "a key for one test run, the same for every process",
            "BASE_URL": self.url,
            "LOG_FORMAT": "json",
            "DRYDOCK_LOG_FORMAT": "json",
        }
        credentials = folder / "credentials.json"
        self.join_token = manage(
            "prepare_demo", str(credentials), "--url", self.url, "--simulator-url", simulator.url,
            environment=self.environment,
        ).strip()  # fmt: skip
        self.people: dict[str, Any] = json.loads(credentials.read_text())
        self.recipes: dict[str, Recipe] = {recipe.name: recipe for recipe in (
            recipes.web(self.port), recipes.worker(), recipes.beat(),
        )}  # fmt: skip
        for agent in recipes.agents(
            json.loads(fleet.read_text()), folder=folder, fleet_url=self.url, simulator_url=simulator.url,
            join_token=self.join_token, sockets={},
        ):  # fmt: skip
            environment = {**agent.environment, "DRYDOCK_REDIS_CACHES": " ".join(caches)}
            self.recipes[agent.name] = replace(agent, environment=environment)
        self.processes: dict[str, Process] = {}
        # Where the test began that the ring is used for: lines of Azure's log before are those of others.
        self.begun = 0

    def begin_again(self) -> None:
        """For the next test: whatever was stopped runs again, every event is over, and Azure's log begins here."""
        stopped = [name for name in self.recipes if name not in self.processes]
        if stopped:
            self.start(*stopped)
        end_events(self.simulator)
        wait_for(lambda: not self.listed(), seconds=60, what="every event is over", every=ASK_EVERY)
        self.all_live(len(NAMES))
        self.begun = max((line["index"] for line in self.simulator.log(limit=1)), default=0)

    def listed(self) -> list[Any]:
        """The events that are not over."""
        return [event for event in self.get("events/")["results"] if event["status"] != "ENDED"]

    def start(self, *names: str) -> None:
        """Start these parts; without names all of them. Returns once the web process answers and Celery is ready."""
        parts = names or tuple(self.recipes)
        for name in parts:
            if not name.startswith("agent-"):
                self._start(name)
        if "web" in parts:
            wait_for(lambda: answers(f"{self.url}/readyz"), seconds=60, what="the web process answers", every=ASK_EVERY)
        for name in parts:
            if name.startswith("agent-"):
                self._start(name)
        if "worker" in parts:
            worker = self.processes["worker"]
            wait_for(lambda: "ready." in worker.said(), seconds=60, what="the Celery worker is ready")

    def _start(self, name: str) -> None:
        recipe = self.recipes[name]
        environment = {**self.environment, **recipe.environment}
        cwd = self.folder if name == "beat" else ROOT
        self.processes[name] = start(recipe.command, environment=environment, log=self.folder / f"{name}.log", cwd=cwd)

    def kill(self, *names: str) -> None:
        for name in names:
            if name in self.processes:
                self.processes.pop(name).kill()

    def stop(self) -> None:
        # The web process ends last, so that agents can still sign off.
        for name in sorted(self.processes, key=lambda name: name == "web"):
            self.processes[name].child.terminate()
        for process in self.processes.values():
            try:
                process.child.wait(20)
            finally:
                process.kill()

    def call(
        self, method: str, path: str, *, by: str = "operator", headers: Mapping[str, str] | None = None, **more: Any
    ) -> requests.Response:
        """One call of the REST API below `/api/v1/`."""
        headers = {"Authorization": f"Bearer {self.people[by]['token']}", **(headers or {})}
        return requests.request(method, f"{self.url}/api/v1/{path}", headers=headers, **{"timeout": 10, **more})

    def get(self, path: str) -> Any:
        answer = self.call("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def logged_in(self) -> requests.Session:
        """A browser without a screen, in which the operator is signed in."""
        session = requests.Session()
        address = f"{self.url}/accounts/login/"
        session.get(address, timeout=10)
        login = {"login": self.people["operator"]["username"], "password": self.people["operator"]["password"]}
        form = {**login, "csrfmiddlewaretoken": session.cookies[settings.CSRF_COOKIE_NAME]}
        answer = session.post(address, data=form, headers={"Referer": address}, timeout=10)
        assert answer.status_code == 200, answer.text
        assert settings.SESSION_COOKIE_NAME in session.cookies
        return session

    def event(self, event_id: str) -> Any:
        """Return the event, or None before an agent has reported it."""
        answer = self.call("GET", f"events/{event_id}/")
        return answer.json() if answer.status_code == 200 else None

    def event_when(self, event_id: str, status: str, *, seconds: float = 60) -> Any:
        """The event once it has this status."""
        return self._when(lambda: self.event(event_id) or {"status": ""}, "status", status, seconds)

    def seen_by(self, event_id: str, count: int) -> None:
        """Returns once so many machines have seen the event."""
        wait_for(
            lambda: len((self.event(event_id) or {"sightings": ()})["sightings"]) == count,
            seconds=20, what=f"{count} machines have seen the event {event_id}",
        )  # fmt: skip

    def all_live(self, count: int) -> None:
        """Returns once this many machines are live."""
        wait_for(
            lambda: [machine["presence"] for machine in self.get("machines/")["results"]].count("live") == count,
            seconds=60, what=f"{count} machines are live", every=ASK_EVERY,
        )  # fmt: skip

    def approve(self, event_id: str, comment: str = "agreed") -> Any:
        answer = self.call("POST", f"events/{event_id}/approvals/", json={"comment": comment})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def approval_when(self, approval_id: int, state: str) -> Any:
        return self._when(lambda: self.get(f"approvals/{approval_id}/"), "state", state)

    def _when(self, read: Callable[[], Any], name: str, value: str, seconds: float = 60) -> Any:
        def found() -> Any:
            row = read()
            return row if row[name] == value else None

        return wait_for(found, seconds=seconds, what=f"{name} is {value}", every=ASK_EVERY)

    def starts(self) -> list[dict[str, Any]]:
        """Every `StartRequests` that reached Azure in this test."""
        posts = self.simulator.log(method="POST", since=self.begun)
        return [line for line in posts if "/metadata/scheduledevents" in line["path"]]


@contextmanager
def ring(urls: Urls, folder: Path, caches: Sequence[str] = ()) -> Iterator[Ring]:
    """A ring that is prepared and not started, except for its simulated Azure; everything is gone afterwards.

    `caches` are the addresses of those that each agent listens to.
    """
    fleet = fleet_file(folder)
    with ExitStack() as stack:
        simulator = stack.enter_context(RunningSimulator(fleet))
        made = Ring(urls, folder, simulator, fleet, caches)
        stack.callback(made.stop)
        yield made


@contextmanager
def ring_of_its_own(folder: Path) -> Iterator[Ring]:
    """A whole ring on a Postgres of its own, in which every machine is live."""
    with (
        restoring.server() as database,
        valkey_server(folder) as valkey,
        ring(Urls(database=database, redis=valkey.url), folder) as made,
    ):
        made.start()
        made.all_live(len(NAMES))
        yield made
