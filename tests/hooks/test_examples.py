"""The examples of hooks, with real folders, connections and processes, and servers that answer as the real ones do."""

import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator

from tests.agent.agents import Machine, SteppedClock, executable
from tests.agent.conftest import one_simulator as one_simulator  # noqa: PLC0414 - a fixture
from tests.agent.conftest import simulator as simulator  # noqa: PLC0414 - a fixture
from tests.processes import ROOT, wait_for
from tests.receivers import Handler, in_a_thread, serving

EXAMPLES = ROOT / "examples" / "hooks"


class Example:
    """One folder of examples on one machine; `Example.set` gives its hooks a variable."""

    def __init__(self, name: str, machine: Machine, simulator: RunningSimulator, patch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.machine = machine
        self.simulator = simulator
        self._patch = patch

    def set(self, **variables: object) -> None:
        for name, value in variables.items():
            self._patch.setenv(name, str(value))

    def replace_program(self, folder: Path, name: str, program: str) -> None:
        """Puts a program of this name in front of the machine's own."""
        executable(folder / name, program, head="")
        self.set(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")

    def rehearse(self, hook: str) -> str:
        """What one hook says in a drill; fails where it failed."""
        drill = {"DRYDOCK_DRILL": "1", "DRYDOCK_EVENT_TYPE": "Reboot", "DRYDOCK_HOOK_TIMEOUT_SECONDS": "5"}
        command = [EXAMPLES / self.name / hook]
        return subprocess.check_output(
            command, env={**os.environ, **drill}, stdin=subprocess.DEVNULL, text=True, timeout=30
        )

    def prepare(self, kind: str = "Reboot", *, ends: str = "succeeded", **more: Any) -> tuple[str, str]:
        """The id of a new event, and what the hooks for it said; fails where they ended otherwise."""
        fields = {"resources": ["web-vm1"], "notice_seconds": 600, **more}
        event_id = self.simulator.events.create(set="web", type=kind, **fields)
        outcome, output = self._look(event_id, "prepare")
        assert outcome == ends, output
        return event_id, output

    def recover(self, event_id: str) -> str:
        """The event goes; what the hooks said."""
        if self.simulator.events.get(event_id)["status"] == "Scheduled":
            self.simulator.events.start(event_id)
        self.simulator.events.complete(event_id)
        outcome, output = self._look(event_id, "recover")
        assert outcome == "succeeded", output
        return output

    def cancel(self, event_id: str) -> str:
        """The event is cancelled; what the hooks said."""
        self.simulator.events.cancel(event_id)
        return self._look(event_id, "recover")[1]

    def _look(self, event_id: str, phase: str) -> tuple[str, str]:
        self.machine.look()
        found = [data for data in self.machine.reports() if (data["event_id"], data["phase"]) == (event_id, phase)]
        return found[-1]["outcome"], "".join(data["output"] for data in found)


ExampleFactory = Callable[..., Example]


@pytest.fixture
def example(tmp_path: Path, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExampleFactory]:
    with ExitStack() as stack:

        def make(name: str, *, timeout: float = 10.0) -> Example:
            url = simulator.vm_url("web-vm1")
            machine = Machine(tmp_path, EXAMPLES / name, url, SteppedClock(), timeout=timeout)
            stack.callback(machine.close)
            return Example(name, machine, simulator, monkeypatch)

        yield make


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub folder").mkdir(parents=True)
    (folder / "sub folder" / "data").write_text("of the day")
    executable(folder / "run", "", mode=0o750)
    return folder


@pytest.fixture
def checkpoint(example: ExampleFactory, tmp_path: Path, work: Path) -> Example:
    checkpoint = example("checkpoint-and-restore")
    checkpoint.set(WORK_DIR=work, CHECKPOINT_DIR=tmp_path / "kept")
    return checkpoint


def test_what_the_event_took_away_comes_back(checkpoint: Example, tmp_path: Path, work: Path) -> None:
    event_id, _ = checkpoint.prepare("Redeploy")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["checkpoint.tar"]
    shutil.rmtree(work)
    assert checkpoint.recover(event_id) == f"Restored {work}.\n"
    assert (work / "sub folder" / "data").read_text() == "of the day"
    assert (work / "run").stat().st_mode & 0o777 == 0o750
    assert list((tmp_path / "kept").iterdir()) == []


def test_what_is_still_there_is_left_as_it_is(checkpoint: Example, work: Path) -> None:
    event_id, _ = checkpoint.prepare("Redeploy")
    (work / "sub folder" / "data").write_text("newer")
    assert checkpoint.cancel(event_id) == f"{work} is not empty: left as it is.\n"
    assert (work / "sub folder" / "data").read_text() == "newer"


def test_a_freeze_needs_no_checkpoint(checkpoint: Example, tmp_path: Path) -> None:
    event_id, said = checkpoint.prepare("Freeze")
    assert "nothing to keep" in said
    assert not (tmp_path / "kept").exists()
    assert checkpoint.recover(event_id) == "There is no checkpoint.\n"


def test_a_checkpoint_that_fails_is_a_failure_and_spoils_no_older_one(checkpoint: Example, tmp_path: Path) -> None:
    checkpoint.prepare("Redeploy")
    kept = (tmp_path / "kept" / "checkpoint.tar").read_bytes()
    checkpoint.set(WORK_DIR=tmp_path / "nowhere")
    checkpoint.prepare("Redeploy", ends="failed")
    assert (tmp_path / "kept" / "checkpoint.tar").read_bytes() == kept


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the example reads /proc/net")


@pytest.fixture
def client() -> Iterator[socket.socket]:
    """A client of a server that keeps the connection; closing it here closes it there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            served, _ = server.accept()
            served.settimeout(20)

            def serve() -> None:
                with served:
                    served.recv(1)

            thread = threading.Thread(target=serve)
            thread.start()
            yield client
        thread.join()


@pytest.fixture
def drain_file(tmp_path: Path) -> Path:
    return tmp_path / "draining"


def made_of(example: ExampleFactory, client: socket.socket, drain_file: Path, *, timeout: float) -> Example:
    made = example("drain-connections", timeout=timeout)
    made.set(DRAIN_PORT=client.getpeername()[1], DRAIN_FILE=drain_file)
    return made


@LINUX
@pytest.mark.real_time
def test_it_waits_until_the_last_one_has_gone(example: ExampleFactory, client: socket.socket, drain_file: Path) -> None:
    made = made_of(example, client, drain_file, timeout=15)

    def leave() -> None:
        wait_for(drain_file.exists, seconds=10, what="draining")
        client.shutdown(socket.SHUT_RDWR)
        client.close()

    leaver = threading.Thread(target=leave)
    leaver.start()
    event_id, said = made.prepare()
    leaver.join()
    assert said.endswith("No client is connected.\n")
    assert drain_file.exists(), "no new client before the event is over"
    made.recover(event_id)
    assert not drain_file.exists()


@LINUX
@pytest.mark.real_time
def test_one_who_stays_is_a_failure_in_words(example: ExampleFactory, client: socket.socket, drain_file: Path) -> None:
    made = made_of(example, client, drain_file, timeout=8)
    _, said = made.prepare(ends="failed")
    port = client.getpeername()[1]
    assert said == f"1 connections to port {port}.\n1 connections are still open.\n"


@LINUX
def test_draining_continues_for_another_event(example: ExampleFactory, client: socket.socket, drain_file: Path) -> None:
    made = made_of(example, client, drain_file, timeout=15)
    client.close()
    first, _ = made.prepare()
    second, _ = made.prepare()
    assert made.recover(first) == f"Still draining, because of {second}.\n"
    assert drain_file.exists()
    assert made.recover(second) == "Connections are taken again.\n"
    assert not drain_file.exists()


class Node:
    """The API of one node. A switchover that was taken shows in the role after two more looks."""

    def __init__(self) -> None:
        self.url = ""
        self.role = "master"
        self.healthy = 2
        self.looks_until_replica = -1
        self.switchovers: list[tuple[dict[str, Any], str]] = []


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()

    class Here(Handler):
        def take(self) -> None:
            if self.command == "GET":
                if node.looks_until_replica == 0:
                    node.role = "replica"
                node.looks_until_replica -= 1
                content = {"state": "running", "role": node.role, "patroni": {"name": "pg1", "scope": "shop"}}
                self.answer(200 if self.path == "/patroni" else 404, json.dumps(content).encode())
                return
            node.switchovers.append((json.loads(self.body()), self.headers.get("Authorization", "")))
            if node.healthy < 2:
                self.answer(412, b"switchover is not possible: no good candidates have been found\n")
            else:
                node.looks_until_replica = 2
                self.answer(200, b'Successfully switched over to "pg2"')

    with serving(Here) as node.url:
        yield node


@pytest.fixture
def failover(example: ExampleFactory, node: Node) -> Example:
    failover = example("fail-over-a-primary")
    failover.set(PATRONI_URL=node.url, http_proxy="http://127.0.0.1:9")
    return failover


def test_the_primary_hands_its_role_over_and_waits_until_it_has(failover: Example, node: Node) -> None:
    failover.set(PATRONI_USER="admin", PATRONI_PASSWORD="pass")
    _, said = failover.prepare()
    assert said == 'Successfully switched over to "pg2"\npg1 is no longer the primary.\n'
    assert node.switchovers == [({"leader": "pg1"}, "Basic YWRtaW46cGFzcw==")]
    assert node.role == "replica"


def test_in_a_drill_the_primary_keeps_its_role(failover: Example, node: Node) -> None:
    assert failover.rehearse("prepare.d/20-fail-over") == "A drill: pg1 would hand its role over now.\n"
    assert node.switchovers == []


def test_a_replica_has_nothing_to_do(failover: Example, node: Node) -> None:
    node.role = "replica"
    _, said = failover.prepare()
    assert said == "This node is a replica: nothing to do.\n"
    assert node.switchovers == []


def test_missing_failover_candidate_is_a_failure_with_a_reason(failover: Example, node: Node) -> None:
    node.healthy = 1
    _, said = failover.prepare(ends="failed")
    assert said == "Patroni refused: 412 switchover is not possible: no good candidates have been found\n"


class Pool:
    """One server of one backend. Each look at the sessions of a draining server finds one fewer."""

    def __init__(self) -> None:
        self.state = "ready"
        self.sessions = 3

    def answer(self, command: str) -> str:
        words = command.split()
        if words[:2] == ["set", "server"]:
            if words[2] != "web/vm1":
                return "No such server.\n\n"
            self.state = words[4]
            return "\n"
        if words == ["show", "stat"]:
            if self.state == "drain" and self.sessions:
                self.sessions -= 1
            rows = ["# pxname,svname,qcur,scur", "web,FRONTEND,,9", "web,vm2,0,7", f"web,vm1,0,{self.sessions}"]
            return "\n".join(rows) + "\n\n"
        return "Unknown command.\n"


class PoolHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(self.server.pool.answer(self.rfile.readline().decode()).encode())  # type: ignore[attr-defined]


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture(params=["tcp", "socket"])
def address(request: pytest.FixtureRequest, pool: Pool, tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "admin.sock")
    server: socketserver.BaseServer
    if request.param == "tcp":
        server = socketserver.TCPServer(("127.0.0.1", 0), PoolHandler)
        path = f"127.0.0.1:{server.server_address[1]}"
    else:
        server = socketserver.UnixStreamServer(path, PoolHandler)
    server.pool = pool  # type: ignore[attr-defined]
    with in_a_thread(server):
        yield path


def test_the_machine_leaves_serves_sessions_and_comes_back(example: ExampleFactory, pool: Pool, address: str) -> None:
    made = example("leave-a-load-balancer-pool")
    made.set(HAPROXY=address, HAPROXY_SERVER="web/vm1")
    first, said = made.prepare()
    assert (said, pool.state, pool.sessions) == ("web/vm1 is out of the pool.\n", "drain", 0)
    second, _ = made.prepare("Freeze")
    assert made.recover(first) == f"web/vm1 stays out of the pool, because of {second}.\n"
    assert pool.state == "drain"
    assert made.recover(second) == "web/vm1 is in the pool again.\n"
    assert pool.state == "ready"


def test_a_refusal_is_a_failure_in_words(example: ExampleFactory, address: str) -> None:
    made = example("leave-a-load-balancer-pool")
    made.set(HAPROXY=address, HAPROXY_SERVER="web/vm9")
    _, said = made.prepare(ends="failed")
    assert said == "HAProxy refused: No such server.\n"


@pytest.mark.real_time
def test_sessions_that_stay_are_a_failure_in_words(example: ExampleFactory, pool: Pool, address: str) -> None:
    pool.sessions = 1000
    made = example("leave-a-load-balancer-pool", timeout=4)
    made.set(HAPROXY=address, HAPROXY_SERVER="web/vm1")
    _, said = made.prepare(ends="failed")
    assert said.startswith("web/vm1 takes no new client, and still serves 9")


def test_each_phase_of_each_event_is_one_line_of_json(example: ExampleFactory, tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    made = example("log-the-event")
    made.set(EVENT_LOG=log)
    first, said = made.prepare(description='a "quoted" text')
    assert said == f"Logged in {log}.\n"
    made.recover(first)
    second, _ = made.prepare("Freeze", starts_as="Started")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [(line["phase"], line["late"], line["event"]["EventId"]) for line in lines] == [
        ("prepare", 0, first),
        ("recover", 0, first),
        ("prepare", 1, second),
    ]
    assert lines[0]["event"]["Description"] == 'a "quoted" text'


# A service is a process that takes its time to end and then writes its last word; `stubborn` refuses to be stopped.
SERVICE = r"""#!/bin/sh
trap 'sleep 0.2; echo "ended $1" >>happened; rm "$1.pid"; exit 0' TERM
echo $$ >"$1.pid"
while :; do sleep 0.05; done
"""
SYSTEMCTL = r"""#!/bin/sh
cd "$UNITS" || exit 9
for unit; do :; done
case $1 in
is-active) [ -e "$unit.pid" ] ;;
start)
    ./service "$unit" >/dev/null 2>&1 &
    until [ -s "$unit.pid" ]; do sleep 0.02; done
    echo "started $unit" >>happened ;;
stop)
    [ "$unit" = stubborn ] && exit 1
    kill "$(cat "$unit.pid")"
    while [ -e "$unit.pid" ]; do sleep 0.02; done ;;
esac
"""


@pytest.fixture
def units(tmp_path: Path) -> Iterator[Path]:
    folder = executable(tmp_path / "units" / "service", SERVICE, head="").parent
    yield folder
    for pid in folder.glob("*.pid"):
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def shutdown(example: ExampleFactory, tmp_path: Path, units: Path) -> Example:
    shutdown = example("shut-down-gracefully")
    shutdown.replace_program(tmp_path / "bin", "systemctl", SYSTEMCTL)
    shutdown.set(UNITS=units, SERVICES="web worker database", SERVICES_FILE=tmp_path / "stopped")
    return shutdown


def start_services(*services: str) -> None:
    for service in services:
        subprocess.run(["systemctl", "start", service], check=True, stdin=subprocess.DEVNULL)


def happened(units: Path) -> list[str]:
    """What happened since the last look."""
    lines = (units / "happened").read_text().splitlines()
    (units / "happened").write_text("")
    return lines


def test_services_end_in_order_and_start_in_the_opposite_one(shutdown: Example, units: Path) -> None:
    start_services("database", "worker", "web")
    happened(units)
    event_id, said = shutdown.prepare()
    assert said == "Stopped web.\nStopped worker.\nStopped database.\n"
    assert happened(units) == ["ended web", "ended worker", "ended database"]
    assert list(units.glob("*.pid")) == []
    said = shutdown.recover(event_id)
    assert said == "Started database.\nStarted worker.\nStarted web.\n"
    assert happened(units) == ["started database", "started worker", "started web"]


def test_what_a_person_stopped_stays_so_and_nothing_starts_before_another_event(shutdown: Example, units: Path) -> None:
    start_services("database", "web")
    first, _ = shutdown.prepare()
    second, _ = shutdown.prepare()
    happened(units)
    assert shutdown.recover(first) == f"Nothing is started, because of {second}.\n"
    assert happened(units) == []
    shutdown.cancel(second)
    assert happened(units) == ["started database", "started web"]


def test_drills_and_freezes_stop_nothing(shutdown: Example, units: Path) -> None:
    start_services("web")
    happened(units)
    said = shutdown.rehearse("prepare.d/40-stop-services")
    assert said == "A drill: web worker database would be stopped now.\n"
    event_id, _ = shutdown.prepare("Freeze")
    shutdown.recover(event_id)
    assert happened(units) == []


def test_a_service_that_does_not_stop_is_a_failure_and_the_others_stop(shutdown: Example) -> None:
    shutdown.set(SERVICES="stubborn web")
    start_services("web", "stubborn")
    _, said = shutdown.prepare(ends="failed")
    assert said == "Could not stop stubborn.\nStopped web.\n"
