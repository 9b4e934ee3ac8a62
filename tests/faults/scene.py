"""A ring whose every part can be frozen, killed and started again, and the calls of a client that may be cut."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import redis
import requests
from azure_simulator.child_process import RunningSimulator

from fleet import embedded
from fleet.embedded import Urls, postgres_server, temporary_folder, valkey_server
from fleet.embedded import held as held_folder
from tests.faults.schedule import EAST, WEST, Victim
from tests.processes import Process, answers, wait_for
from tests.ring.ring import Ring, fleet_file

RECIPES = {Victim.GATEWAY: "web", Victim.WORKER: "worker", Victim.BEAT: "beat"}


class Server:
    """`run` starts it. To be used from the main thread, whose end it follows."""

    def __init__(self, run: Callable[[], AbstractContextManager[embedded.Server]], pid_file: Path) -> None:
        self.run = run
        self.pid_file = pid_file
        self.url = ""
        self._running = ExitStack()

    def start(self) -> None:
        """Returns once it answers."""
        self.url = self._running.enter_context(self.run()).url

    def stop(self) -> None:
        self._running.close()

    def kill(self) -> None:
        """Kill -9 for the server and for each process that serves a session."""
        pid = int(self.pid_file.read_text().split("\n", 1)[0])
        # The server first: Postgres answers the death of a session's process with a restart of its own.
        for each in (pid, *children(pid)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._running.close()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass(slots=True)
class Grant:
    """One approval as a client asks for it: with a key, and again until it knows."""

    event_id: str
    key: str = field(default_factory=lambda: str(uuid4()))
    # What came back the first time: a status, or 0 where the connection was cut.
    status: int | None = None
    approval_id: int | None = None
    thread: threading.Thread | None = None

    @property
    def seen_granted(self) -> bool:
        return self.status == 201


@dataclass
class Scene:
    """The ring, the servers behind it, and the simulated Azure."""

    ring: Ring
    database: Server
    broker: Server

    # People

    def ask(self, event_id: str) -> Grant:
        """Begin to approve, in a thread: the call may be held, or cut."""
        grant = Grant(event_id)

        def call() -> None:
            grant.status, grant.approval_id = self._approve(grant)

        grant.thread = threading.Thread(target=call, daemon=True)
        grant.thread.start()
        return grant

    def insist(self, grant: Grant, *, seconds: float) -> tuple[int, int | None]:
        """Repeat with the same key until the backend says yes or no: (status, approval)."""

        def again() -> tuple[int, int | None] | None:
            status, approval_id = self._approve(grant)
            return (status, approval_id) if status in (201, 404, 409, 422) else None

        return wait_for(again, seconds=seconds, what="the backend answers the repeated call")

    def _approve(self, grant: Grant) -> tuple[int, int | None]:
        headers, body = {"Idempotency-Key": grant.key}, {"comment": "agreed"}
        try:
            answer = self.ring.call(
                "POST", f"events/{grant.event_id}/approvals/", headers=headers, json=body, timeout=20
            )
        except requests.RequestException:
            return 0, None
        return answer.status_code, answer.json()["id"] if answer.status_code == 201 else None

    # Rows

    def rows(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            return connection.execute(question, values).fetchall()

    @contextmanager
    def at_once(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        """A function like `rows` whose answers are all of one moment."""
        with psycopg.connect(self.database.url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            yield lambda question, *values: connection.execute(question, values).fetchall()

    def asked(self, event_id: str) -> str:
        """The machine whose order is open, or would be the first."""
        found = self.rows(
            """SELECT m.resource_name FROM fleet_order o JOIN fleet_machine m ON m.id = o.machine_id
               JOIN fleet_approval a ON a.id = o.approval_id JOIN fleet_scheduledevent e ON e.id = a.event_id
               WHERE e.event_id = %s ORDER BY o.offered_at DESC LIMIT 1""",
            event_id,
        )
        return str(found[0][0]) if found else str(self.ring.simulator.events.get(event_id)["resources"][0])

    # Processes

    def name_of(self, victim: Victim, event_id: str) -> str:
        """The process in the ring."""
        return RECIPES[victim] if victim in RECIPES else f"agent-{self.asked(event_id)}"

    def frozen(self, name: str) -> AbstractContextManager[None]:
        """See `frozen_process`."""
        return frozen_process(self.ring.processes[name])

    def kill(self, victim: Victim, name: str) -> None:
        if victim is Victim.POSTGRES:
            self.database.kill()
        elif victim is Victim.REDIS:
            self.broker.kill()
        else:
            self.ring.kill(name)

    def start(self, victim: Victim, name: str) -> None:
        """Start it again; returns once it serves."""
        if victim is Victim.POSTGRES:
            self.database.start()
        elif victim is Victim.REDIS:
            self.broker.start()
        else:
            self.start_process(name)

    def start_process(self, name: str) -> None:
        log = self.ring.folder / f"{name}.log"
        said = log.stat().st_size if log.exists() else 0
        # Not by its own waiting, which would be satisfied by what an earlier process said.
        worker = self.ring.processes.pop("worker", None)
        self.ring.start(name)
        if worker is not None and name != "worker":
            self.ring.processes["worker"] = worker
        if name == "worker":
            wait_for(lambda: b"ready." in log.read_bytes()[said:], seconds=60, what="the worker is ready")
        if name == "web":
            wait_for(lambda: answers(f"{self.ring.url}/readyz"), seconds=60, what="the gateway is ready")

    def heal(self) -> None:
        """Start what a round that broke off has left lying."""
        for name in self.ring.recipes:
            if name not in self.ring.processes:
                self.start_process(name)

    def broker_client(self) -> redis.Redis:
        return redis.Redis.from_url(self.broker.url, socket_timeout=5)


@contextmanager
def frozen_process(process: Process) -> Iterator[None]:
    """Stop scheduling the process for the block. A process that is killed meanwhile never continues."""
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)


@contextmanager
def scene() -> Iterator[Scene]:
    """A whole ring, started, with all machines live; everything is gone afterwards."""
    with ExitStack() as stack:
        folder = stack.enter_context(held_folder(stack.enter_context(temporary_folder())))
        # With its syncs: what is killed here must find everything again.
        database = Server(lambda: postgres_server(folder), folder / "postgres" / "postmaster.pid")
        broker = Server(lambda: valkey_server(folder), folder / "valkey" / "valkey.pid")
        for server in (database, broker):
            server.start()
            stack.callback(server.stop)
        simulator = stack.enter_context(RunningSimulator(fleet_file(folder, west=WEST, east=EAST)))
        ring = Ring(Urls(database=database.url, redis=broker.url), folder, simulator, folder / "fleet.json")
        install_holds(database.url)
        stack.callback(ring.stop)
        ring.start()
        ring.all_live(len([*WEST, *EAST]))
        yield Scene(ring, database, broker)


def passed(moment: float) -> None:
    """Sleep until this time of `time.time()`."""
    time.sleep(max(moment - time.time(), 0.0))


# Stops inside a transaction, or inside its COMMIT, that the harness sets and lifts. Triggers in the ring's own database
# take a shared advisory lock whose number names the stop. A session that holds that lock exclusively stops every
# transaction that reaches it; the product knows nothing of it.

# The first half of the locks' numbers, so that they meet no other.
CLASS = 990_001

INSTALL = """
CREATE FUNCTION faults_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared({cls}, hashtext(TG_ARGV[0] || ' ' || TG_TABLE_NAME || ' ' || NEW.state));
  RETURN NULL;
END $$;
CREATE TRIGGER faults_in AFTER INSERT OR UPDATE OF state ON fleet_approval
  FOR EACH ROW EXECUTE FUNCTION faults_hold('in');
CREATE TRIGGER faults_in AFTER INSERT OR UPDATE OF state ON fleet_order
  FOR EACH ROW EXECUTE FUNCTION faults_hold('in');
CREATE CONSTRAINT TRIGGER faults_at AFTER INSERT OR UPDATE OF state ON fleet_approval
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults_hold('at');
CREATE CONSTRAINT TRIGGER faults_at AFTER INSERT OR UPDATE OF state ON fleet_order
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults_hold('at');
"""


def install_holds(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSTALL.replace("{cls}", str(CLASS)))


@contextmanager
def transactions_held(url: str, where: str) -> Iterator[None]:
    """Holds transactions at `<in|at> <table> <state>`: at that write, or at the commit of what wrote that."""
    connection = psycopg.connect(url, autocommit=True)
    try:
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [CLASS, where])
        yield
    finally:
        # Postgres may be the one that was killed; then nothing is held any more.
        with suppress(psycopg.Error):
            connection.close()


def transactions_waiting(url: str) -> int:
    """Return the number of transactions that wait at a stop."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND NOT granted", [CLASS]
        ).fetchone()
    return int(row[0]) if row else 0
