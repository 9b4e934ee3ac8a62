"""`manage.py demo`: run all of Drydock on this machine, with a simulated Azure and one real agent for each machine."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from fleet.domain.people import GROUPS
from fleet.embedded import Server, ServerProblem, Urls, held, servers, valkey_server
from fleet.embedded.parent_death import bound, end_with_parent
from fleet.embedded.valkey import binary
from fleet.management import demo_recipes as recipes
from fleet.management.helpers import write_private
from fleet.management.supervisor import WATCH_SECONDS, Recipe, Worker, stop_all

FLEET_FILE = settings.BASE_DIR / "agents" / "azure_simulator" / "demo_fleet.json"
# Passwords and tokens, there while everything answers.
CREDENTIALS = "credentials.json"
# Whom it believes who a machine is.
ROOTS = "roots"
PATIENCE_SECONDS = 90.0
STOP_SECONDS = 4.0
# The silent machine of the story, the last one of the first set: quiet after this time, for this time, then again.
SILENT = 5
QUIET_AFTER, QUIET_FOR, QUIET_EVERY = 240.0, 360.0, 1800.0


class Ended(Exception):
    """Raised to end the demo."""


class Command(BaseCommand):
    help = "Runs Drydock with a simulated fleet until it is interrupted; see docs/admin/settings.md, The demo."
    # This command itself makes the settings that the checks require.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        # SIGINT also where a shell without job control has started us with it ignored; `nohup` keeps its effect.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, end)
        # `make` passes no signal on when it is killed.
        if os.environ.get("MAKELEVEL"):
            end_with_parent(signal.SIGTERM)
        workers: list[Worker] = []
        try:
            if not FLEET_FILE.exists():
                raise ServerProblem("The demo plays Azure with the simulator of the source tree, and runs there only.")
            ports = {"PORT": settings.PORT, "SIMULATOR_PORT": settings.SIMULATOR_PORT}
            if settings.DEMO_SINGLE_SIGN_ON:
                ports["DEMO_SINGLE_SIGN_ON_PORT"] = settings.DEMO_SINGLE_SIGN_ON_PORT
            for name, port in ports.items():
                expect_free(name, port)
            with (
                held(Path(settings.DEMO_DIR)) as folder,
                servers(folder / "servers", dict(os.environ)) as urls,
                cache_servers(folder / "servers") as of_caches,
            ):
                try:
                    self.run(folder, urls, of_caches, workers)
                finally:
                    # A second Ctrl-C must not leave half of them running.
                    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                        signal.signal(number, signal.SIG_IGN)
                    stop_all(workers, STOP_SECONDS)
                    # When a reader finds the file, everything answers.
                    (folder / CREDENTIALS).unlink(missing_ok=True)
        except ServerProblem as problem:
            raise CommandError(str(problem)) from problem
        except Ended:
            self.say("Ended.")

    def say(self, text: str) -> None:
        # The reader of our output may have ended; that is no reason to end in a traceback.
        with suppress(BrokenPipeError):
            self.stdout.write(text)
            self.stdout.flush()

    def run(self, folder: Path, urls: Urls, of_caches: dict[str, Server], workers: list[Worker]) -> None:
        """Start all processes, print how to sign in, and restart processes that end, until `Ended` is raised."""
        url, simulator_url = f"http://127.0.0.1:{settings.PORT}", f"http://127.0.0.1:{settings.SIMULATOR_PORT}"
        os.environ.update(urls.environment)
        os.environ.update(own_settings(folder, url))
        self.servers = [*urls.own, *of_caches.values()]
        sockets = {host: Path(unquote(urlsplit(server.url).path)) for host, server in of_caches.items()}
        self.workers, self.logs = workers, folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self.say(f"Starting Drydock with its data in {folder} ...")
        if settings.DEMO_SINGLE_SIGN_ON:
            self.launch(recipes.directory(port=settings.DEMO_SINGLE_SIGN_ON_PORT, back=f"{url}/accounts/sign-on/back/"))
        self.launch(recipes.simulator(port=settings.SIMULATOR_PORT, fleet_file=FLEET_FILE, sockets=sockets))
        # Its inbox receives the first notifications: if it does not answer, the status bar is red.
        self.wait_until(lambda: answers(f"{simulator_url}/control/log"), "the simulator does not answer")
        # The file of an earlier start is kept under another name until everything answers.
        credentials_file, people_file = folder / CREDENTIALS, folder / "people.json"
        if credentials_file.exists():
            credentials_file.replace(people_file)
        # The web server takes as long to start as reading the tables; at the very first start there are none yet.
        has_tables = people_file.exists()
        if has_tables:
            self.launch(recipes.web(settings.PORT))
        join_token = prepare(people_file, url, simulator_url)
        if not has_tables:
            self.launch(recipes.web(settings.PORT))
        trust_simulator(folder, simulator_url)
        self.wait_until(lambda: answers(f"{url}/readyz"), "the web server does not answer")
        where: dict[str, Any] = {"folder": folder, "fleet_url": url, "simulator_url": simulator_url}
        fleet = json.loads(FLEET_FILE.read_text())
        agents = [self.launch(each) for each in recipes.agents(fleet, **where, join_token=join_token, sockets=sockets)]
        worker = self.launch(recipes.worker())
        credentials = json.loads(people_file.read_text())
        token = credentials["viewer"]["token"]
        try:
            self.wait_until(lambda: live_machines(url, token) >= len(agents), "not every machine is live")
        except CommandError as problem:
            # A missing machine, which a user may have revoked, does not stop the demo.
            self.say(str(problem))
        self.wait_until(lambda: "ready." in worker.said(), "the Celery worker is not ready")
        # Beat only repeats the work of lost tasks; the demo need not wait for it.
        self.launch(recipes.beat())
        write_private(credentials_file, people_file.read_text())
        self.say(welcome(credentials, folder))
        if settings.DEMO_STORY:
            requests.post(f"{simulator_url}/control/stories", json={"story": "all"}, timeout=5).raise_for_status()
        quiet = story_of_silence(agents[SILENT]) if settings.DEMO_STORY else iter(())
        while True:
            self.watch()
            next(quiet, None)

    def launch(self, recipe: Recipe) -> Worker:
        self.workers.append(Worker(recipe, folder=settings.BASE_DIR, logs=self.logs))
        self.workers[-1].start()
        return self.workers[-1]

    def watch(self) -> None:
        """Restart processes that have ended, servers first, then wait a moment."""
        for server in self.servers:
            if said := server.watch():
                self.say(said)
        for each in self.workers:
            each.watch(self.say)
        time.sleep(WATCH_SECONDS)

    def wait_until(self, question: Callable[[], bool], what: str) -> None:
        """Wait until `question()` is true. Raises CommandError that names `what` if it takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not question():
            if time.monotonic() > deadline:
                raise CommandError(f"After {PATIENCE_SECONDS:g} seconds {what}; see {self.logs} for the reason.")
            self.watch()


@contextmanager
def cache_servers(folder: Path) -> Iterator[dict[str, Server]]:
    """Run a Redis server for each cache of the fleet, and yield them by host name. The caches cannot share a server:
    their channels have the same name, and a simulated failover disconnects all clients of a server.
    """
    try:
        binary()
    except ServerProblem:
        # An installation with its own servers may have none for simulated caches.
        yield {}
        return
    hosts = [each["host"] for each in json.loads(FLEET_FILE.read_text())["caches"]]
    with ExitStack() as stack:
        yield {host: stack.enter_context(valkey_server(folder / "caches" / host)) for host in hosts}


def end(number: int, frame: FrameType | None) -> None:
    raise Ended


def expect_free(name: str, port: int) -> None:
    """Raise ServerProblem if another process uses the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ServerProblem(
                f"Port {port} is not to be had ({error.strerror}); choose another with {name}=."
            ) from error


def own_settings(folder: Path, url: str) -> dict[str, str]:
    """Return settings for the demo that the environment does not set: a permanent SECRET_KEY and the demo's own
    address.
    """
    path = folder / "secret-key"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(48))
    mine = {"SECRET_KEY": path.read_text(), "BASE_URL": url, "MACHINE_LATE_SECONDS": recipes.DEMO_LATE_SECONDS}
    # Its machines prove who they are by what the simulated Azure signs.
    roots = folder / ROOTS
    roots.mkdir(exist_ok=True)
    subscriptions = {one["subscription"] for one in json.loads(FLEET_FILE.read_text())["sets"]}
    mine |= {"ENROLMENT_POLICY": "auto", "ATTESTED_ROOTS": str(roots.resolve())}
    mine["ATTESTED_SUBSCRIPTIONS"] = ",".join(sorted(subscriptions))
    # In the demo, webhooks are received on the same machine.
    mine["EGRESS_ALLOWLIST"] = "127.0.0.0/8, ::1"
    if settings.DEMO_SINGLE_SIGN_ON:
        mine |= recipes.sign_on_settings(settings.DEMO_SINGLE_SIGN_ON_PORT)
    return {
        name: value for name, value in mine.items() if not os.environ.get(name) and not os.environ.get(f"{name}_FILE")
    }


def trust_simulator(folder: Path, simulator_url: str) -> None:
    """Store the certificates of the simulated Azure as trusted roots. They change at each start, so the earlier ones
    are replaced.
    """
    shown = requests.get(f"{simulator_url}/control/authority", timeout=10)
    if shown.ok:
        for name, certificate in shown.json().items():
            (folder / ROOTS / f"{name}.pem").write_text(certificate)


def prepare(people_file: Path, url: str, simulator_url: str) -> str:
    """Create the demo's tables, users and tokens, and return a join token. It runs `prepare_demo` as a process, because
    this process has no database connection.
    """
    command = [sys.executable, "-m", "fleet", "prepare_demo", str(people_file), "--url", url]
    ended = subprocess.run(
        bound([*command, "--simulator-url", simulator_url]), capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise CommandError(f"The database could not be prepared: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout.split()[-1]


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=2).ok
    except requests.RequestException:
        return False


def live_machines(url: str, token: str) -> int:
    """Return the number of live machines from the API; 0 if it does not answer."""
    try:
        headers = {"Authorization": f"Bearer {token}"}
        answer = requests.get(f"{url}/api/v1/machines/?page_size=500", headers=headers, timeout=5)
        answer.raise_for_status()
        return sum(machine["presence"] == "live" for machine in answer.json()["results"])
    except requests.RequestException:
        return 0


def story_of_silence(worker: Worker) -> Iterator[None]:
    """Stop the process for a while, again and again, so that its machine appears silent. Each step of the iterator
    stops or starts it if that is due.
    """
    started = time.monotonic()
    while True:
        at = (time.monotonic() - started) % QUIET_EVERY
        quiet = QUIET_AFTER <= at < QUIET_AFTER + QUIET_FOR
        if quiet and worker.wanted:
            stop_all([worker], STOP_SECONDS)
        elif not quiet and not worker.wanted:
            worker.wanted = True
            worker.start()
        yield


def welcome(credentials: dict[str, Any], folder: Path) -> str:
    """Return the text that a visitor needs to sign in and look around."""
    people = "\n".join(f"    {group:<9} {credentials[group]['password']}" for group in GROUPS if group in credentials)
    by_sign_on = f"  Or sign in by its pretended Entra ID, at http://127.0.0.1:{settings.DEMO_SINGLE_SIGN_ON_PORT}\n"
    return f"""
Drydock answers at {credentials["url"]}

  Sign in with a name and its password:

{people}

{by_sign_on if settings.DEMO_SINGLE_SIGN_ON else ""}  The simulated Azure answers at {credentials["simulator_url"]}
  Notifications arrive in the simulated inbox at {credentials["inbox"]}
  Tokens for the API are in {folder / CREDENTIALS}
  Ctrl-C ends it; its data stays in {folder}
"""
