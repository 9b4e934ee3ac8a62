"""Agents for tests: as real processes, and single parts of one in this process; and folders of hooks."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.backend.orders import Orders
from drydock_agent.clock import Clock, ServerClock, boot
from drydock_agent.context import Context
from drydock_agent.drills import Rehearsal
from drydock_agent.hooks.events import EventHooks
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.metadata_service.client import Imds
from drydock_agent.metadata_service.rate_limit import RateLimit
from drydock_agent.metadata_service.scheduled_events import ScheduledEvents
from drydock_agent.metadata_service.versions import EVENTS_VERSIONS, Versions
from drydock_agent.settings.load import load
from drydock_agent.spool.store import Spool

from tests.agent.fleet_double import JOIN_TOKEN, FleetDouble, eventually
from tests.processes import PYTHON, Process, start

VM_IDS = {f"web-vm{number}": f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2)}


def fleet_of(**sets: Mapping[str, str]) -> dict[str, Any]:
    """A fleet of availability sets for the simulator; `sets` are VM ids by machine, each in its own fault domain."""
    place = {"subscription": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90", "resource_group": "shop"}
    made = []
    for name, ids in sets.items():
        machines = [
            {"id": machine, "name": machine, "vm_id": vm_id, "fault_domain": index, "update_domain": index % 2}
            for index, (machine, vm_id) in enumerate(ids.items())
        ]
        made.append({**place, "kind": "availability_set", "name": name, "machines": machines})
    return {"sets": made, "caches": []}


FLEET = fleet_of(web=VM_IDS)


class SteppedClock(Clock):
    """Clock that moves only when a test advances it."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 11, 20, 9, 0, tzinfo=timezone.utc)
        self.seconds = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def since_boot(self) -> float:
        return self.seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock, as NTP does after a boot."""
        self.wall += timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds


class Unhurried(RateLimit):
    """For tests whose time does not pass by itself."""

    def wait(self) -> None:
        return


def announce(simulator: RunningSimulator, kind: str = "Freeze", *, resource: str = "web-vm1") -> str:
    """Return the id of a new event."""
    return simulator.events.create(set="web", type=kind, resources=[resource], notice_seconds=600)


def end_events(simulator: RunningSimulator) -> None:
    for event in simulator.events.all():
        if event["status"] == "Scheduled":
            simulator.events.cancel(event["EventId"])
        elif event["status"] == "Started":
            simulator.events.complete(event["EventId"])


@contextmanager
def full_disk(spool: Spool) -> Iterator[None]:
    """The files of the spool cannot grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = (spool.path.parent / "spool.sqlite3-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Agents:
    """Starts agents, and ends them with the test."""

    def __init__(self, folder: Path, simulator: RunningSimulator, fleet: FleetDouble) -> None:
        self.folder = folder
        self.simulator = simulator
        self.fleet = fleet
        self.started: list[Process] = []

    def environment(self, vm: str = "web-vm1", **more: str) -> dict[str, str]:
        return {
            "DRYDOCK_FLEET_URL": self.fleet.url,
            "DRYDOCK_JOIN_TOKEN": JOIN_TOKEN,
            "DRYDOCK_STATE_DIR": str(self.folder / "state"),
            "DRYDOCK_IMDS_URL": self.simulator.vm_url(vm),
            "DRYDOCK_POLL_SECONDS": "0.5",
            **more,
        }

    def run(self, vm: str = "web-vm1", **more: str) -> Process:
        log = self.folder / f"agent-{len(self.started)}.log"
        command = [PYTHON, "-m", "drydock_agent", "run"]
        self.started.append(start(command, environment=self.environment(vm, **more), log=log))
        return self.started[-1]

    def at_work(self, vm: str = "web-vm1", **more: str) -> Process:
        """An agent that has delivered its first document and holds its call for orders."""
        looks, process = len(self.fleet.looks), self.run(vm, **more)
        known = len(self.fleet.reports())
        eventually(lambda: len(self.fleet.reports()) > known and len(self.fleet.looks) > looks)
        return process

    def announce(self, kind: str = "Freeze", *, resource: str = "web-vm1") -> str:
        return announce(self.simulator, kind, resource=resource)

    def reported(self, *events: str, seconds: float = 30) -> None:
        """Return once a document that lists these events has arrived."""

        def listed() -> bool:
            documents = self.fleet.documents()
            return any(set(events) <= {event["EventId"] for event in document["Events"]} for document in documents)

        eventually(listed, seconds=seconds)

    def command(self, name: str, vm: str = "web-vm1", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "drydock_agent", name],
            env={"PATH": "", **self.environment(vm, **more)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def end(self) -> None:
        for process in self.started:
            process.kill()


def context_of(spool: Spool, clock: Clock, **settings: Any) -> Context:
    """What the parts of web-vm1 share."""
    return Context(
        settings=replace(load({"DRYDOCK_FLEET_URL": "https://drydock.example"}), **settings),
        machine_id=VM_IDS["web-vm1"],
        spool=spool,
        clock=clock,
        server_clock=ServerClock(clock),
        limiter=LogLimiter(clock),
        random=Random(7),
    )


class Parts:
    """Poller and orders of web-vm1, stepped by hand against the simulator, with a real spool."""

    def __init__(self, folder: Path, simulator: RunningSimulator, clock: SteppedClock) -> None:
        self.folder = folder
        self.simulator = simulator
        self.clock = clock
        self._start()

    def _start(self, **settings: Any) -> None:
        self.spool = Spool(self.folder / "spool.sqlite3", clock=self.clock)
        self.context = context_of(self.spool, self.clock, **settings)
        self.server_clock = self.context.server_clock
        self.versions = Versions(EVENTS_VERSIONS, self.clock)
        url, unhurried = self.simulator.vm_url("web-vm1"), Unhurried(self.clock)
        self.imds, self.orders_imds = (Imds(url, versions=self.versions, rate_limit=unhurried) for _ in range(2))
        self.rehearsal = Rehearsal(self.context, changed=lambda: None)
        self.rehearsal.running = True
        self.poller = ScheduledEvents(
            self.context, imds=self.imds, on_document=lambda document: self.rehearsal.update_listed(document.listed)
        )
        self.orders = Orders(
            self.context, imds=self.orders_imds, scheduled_events=self.poller, rehearsal=self.rehearsal
        )

    def restart(self, *, seconds: float = 0, **settings: Any) -> None:
        """The agent ends, and another one starts on its spool after this time."""
        self.close()
        self.clock.advance(seconds)
        self._start(**settings)

    def announce(self, kind: str = "Freeze", *, resource: str = "web-vm1") -> str:
        return announce(self.simulator, kind, resource=resource)

    def fault(self, fault: str, **more: Any) -> None:
        self.simulator.fault("web-vm1", fault, **more)

    @contextmanager
    def requests(self) -> Iterator[list[str]]:
        """The paths of the requests that reach the metadata service within the block, known after it."""
        paths: list[str] = []
        before = max((entry["index"] for entry in self.simulator.log(limit=1)), default=0)
        yield paths
        paths += [entry["path"] for entry in self.simulator.log(since=before)]

    def polls(self, times: int, *, pause: float = 1) -> None:
        """Poll so often, with a pause of stepped time after each."""
        for _ in range(times):
            self.poller.step()
            self.clock.advance(pause)

    def waiting(self, kind: str = "") -> list[dict[str, Any]]:
        """The data of the reports that wait in the spool."""
        batch = self.spool.batch(200, 1 << 30)
        return [json.loads(report.data) for report in batch if kind in ("", report.kind)]

    def close(self) -> None:
        self.spool.close()
        self.imds.close()
        self.orders_imds.close()

    def carry_out(self) -> None:
        while self.orders.step() == 0.0:
            pass


def executable(path: Path, script: str, *, head: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    """Write a program, in a new folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{script}\n", encoding="utf-8")
    path.chmod(mode)
    return path


class HookFolder:
    """A hooks folder. Each hook writes `<phase> <name> <event id>` into `ran` and then does what its script says."""

    def __init__(self, root: Path) -> None:
        self.root = root / "hooks"
        self.ran = root / "ran"
        self.root.mkdir()

    def add(self, phase: str, name: str, script: str = "", *, mode: int = 0o755) -> Path:
        note = f'echo "$DRYDOCK_PHASE {name} $DRYDOCK_EVENT_ID" >> "{self.ran}"'
        return executable(self.root / f"{phase}.d" / name, f"{note}\n{script}", mode=mode)

    def lines(self) -> list[str]:
        """What ran, in order."""
        return self.ran.read_text("utf-8").splitlines() if self.ran.exists() else []


def begun(pid_file: Path) -> bool:
    return pid_file.exists() and pid_file.read_text().strip() != ""


def in_short(reports: Iterable[dict[str, Any]]) -> list[str]:
    """Reports of hooks, such as `prepare hook 10-a succeeded`."""
    return [" ".join(filter(None, (data[field] for field in ("phase", "step", "hook", "outcome")))) for data in reports]


def alive(pid_file: Path) -> bool:
    """Whether the process whose id the file holds runs; one that has ended and was not yet taken note of does not."""
    try:
        return Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Machine:
    """web-vm1: a poller and hooks against the simulator, with a real spool that outlives it."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        imds_url: str,
        clock: SteppedClock,
        *,
        name: str = "web-vm1",
        timeout: float = 10.0,
        boot: Callable[[], str] = boot,
        **settings: Any,
    ) -> None:
        self.clock = clock
        # The simulator announces events by the real time.
        clock.wall = max(clock.wall, datetime.now(timezone.utc))
        self.spool = Spool(folder / "spool.sqlite3")
        self.context = context = context_of(self.spool, clock, hooks_dir=root, hook_timeout_seconds=timeout, **settings)
        self.imds = Imds(imds_url)
        self.hooks = EventHooks(context, resource_name=lambda: name, this_boot=boot)
        self.poller = ScheduledEvents(
            context, imds=self.imds, on_document=lambda document: self.hooks.update_listed(document.body)
        )

    def poll(self) -> None:
        """A second passes, and the metadata service is asked once."""
        self.clock.advance(1)
        self.poller.step()

    def look(self) -> None:
        """One poll, and everything that follows from it."""
        self.poll()
        self.work()

    def work(self) -> None:
        while self.hooks.step() == 0.0:
            pass

    def reports(self) -> list[dict[str, Any]]:
        batch = self.spool.batch(200, 1 << 30)
        return [json.loads(report.data) for report in batch if report.kind == wire.HOOK]

    def said(self) -> list[str]:
        return in_short(self.reports())

    def close(self) -> None:
        self.spool.close()
        self.imds.close()
