"""A ring whose every part can be frozen, killed and started again, and the calls of a client that may be cut."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
import redis
import requests
from azure_simulator.child_process import RunningSimulator

from fleet.embedded import Urls, postgres_server, temporary_folder, valkey_server
from fleet.embedded import held as held_folder
from tests.faults import holds
from tests.faults.schedule import EAST, WEST, Victim
from tests.faults.servers import Server
from tests.processes import Process, answers, wait_for
from tests.ring.ring import Ring, fleet_file

RECIPES = {Victim.GATEWAY: "web", Victim.WORKER: "worker", Victim.BEAT: "beat"}


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


class Scene:
    """The ring, the servers behind it, and the simulated Azure."""

    def __init__(self, ring: Ring, database: Server, broker: Server) -> None:
        self.ring = ring
        self.database = database
        self.broker = broker

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
        holds.install(database.url)
        stack.callback(ring.stop)
        ring.start()
        ring.all_live(len([*WEST, *EAST]))
        yield Scene(ring, database, broker)


def passed(moment: float) -> None:
    """Sleep until this time of `time.time()`."""
    time.sleep(max(moment - time.time(), 0.0))
