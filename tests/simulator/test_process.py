"""`python -m azure_simulator` as a process, and its HTTP at the level of bytes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import azure_simulator
import pytest
from azure_simulator.child_process import ControlError, RunningSimulator

from tests.simulator.asking import METADATA, Simulated, ask, west_norway

AGENTS = Path(azure_simulator.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(AGENTS)}
POLL = b"GET /vm/WestNO_0/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n"


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(west_norway()), encoding="utf-8")
    return path


@pytest.fixture
def line(azure: Simulated) -> Iterator[socket.socket]:
    where = urlsplit(azure.url)
    with socket.create_connection((where.hostname, where.port), timeout=5) as connection:
        yield connection


def read_until(line: socket.socket, times: int, mark: bytes = b'"Events":[]}') -> bytes:
    received = b""
    while received.count(mark) < times:
        part = line.recv(65536)
        assert part, received
        received += part
    return received


def test_a_running_simulator_can_be_steered_from_a_test() -> None:
    with RunningSimulator(west_norway(), as_vm="WestNO_0") as simulator:
        event_id = simulator.events.create(set="west", type="Freeze")
        simulator.fault("WestNO_0", "status-500", count=1)
        target = "/metadata/scheduledevents?api-version=2020-07-01"
        assert ask(simulator.url, "GET", target, headers=METADATA).status == 500
        document = ask(simulator.vm_url("WestNO_1"), "GET", target, headers=METADATA).json
        assert [event["EventId"] for event in document["Events"]] == [event_id]
        assert simulator.events.start(event_id)["status"] == "Started"
        assert simulator.events.complete(event_id)["status"] == "Ended"
        with pytest.raises(ControlError) as caught:
            simulator.events.cancel(event_id)
        assert caught.value.status == 409
        assert [entry["status"] for entry in simulator.log()] == [500, 200]
        assert ask(simulator.url, "GET", "/healthz").json == {"status": "ok"}


@pytest.mark.real_time
def test_it_ends_with_its_parent(fleet_file: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from azure_simulator.child_process import RunningSimulator\n"
        "with RunningSimulator(Path(sys.argv[1])) as simulator:\n"
        "    print(simulator.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(fleet_file)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
    deadline = time.monotonic() + 5
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        # A child whose parent does not wait for it may remain as a zombie.
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_even_while_a_request_hangs(fleet_file: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "azure_simulator", "--listen", "127.0.0.1:0", "--fleet", str(fleet_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as child:
        assert child.stdout is not None
        url = child.stdout.readline().split()[-1]
        ask(url, "POST", "/control/faults", body={"vm": "WestNO_0", "fault": "hang"})
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), timeout=5) as waiting:
            waiting.sendall(POLL + b"\r\n")
            while not ask(url, "GET", "/control/log").json:
                time.sleep(0.02)
            began = time.monotonic()
            child.send_signal(number)
            assert child.wait(30) == 0
            # The request that hangs would do so for half a minute and longer.
            assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--listen", "somewhere"], "--listen takes HOST:PORT"),
        (["--as-vm", "vm99"], "no machine 'vm99'"),
        (["--fleet", "/nonexistent/fleet.json"], "cannot read the fleet file"),
    ],
)
def test_a_mistake_on_the_command_line_gets_one_clear_sentence(options: list[str], complaint: str) -> None:
    command = [sys.executable, "-m", "azure_simulator", "--listen", "127.0.0.1:0", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=10, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_gets_one_clear_sentence(azure: Simulated) -> None:
    command = [sys.executable, "-m", "azure_simulator", "--listen", urlsplit(azure.url).netloc]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=10, check=False)
    assert done.returncode == 1
    assert "cannot listen on" in done.stderr
    assert "Traceback" not in done.stderr


def test_requests_in_one_piece_are_answered_in_order(line: socket.socket) -> None:
    line.sendall((POLL + b"\r\n") * 3)
    assert read_until(line, 3).count(b"HTTP/1.1 200 OK") == 3


def test_a_request_in_many_pieces_is_understood(line: socket.socket) -> None:
    for byte in POLL + b"\r\n":
        line.sendall(bytes([byte]))
    assert read_until(line, 1).startswith(b"HTTP/1.1 200 OK")


def test_a_later_request_waits_for_one_that_is_slow(azure: Simulated, line: socket.socket) -> None:
    azure.control("POST", "faults", {"vm": "WestNO_0", "fault": "slow", "delay_seconds": 0.2})
    unknown = POLL.replace(b"WestNO_0", b"vm99") + b"\r\n"
    line.sendall(POLL + b"\r\n" + unknown)
    received = read_until(line, 1, b"404 Not Found")
    assert received.index(b"200 OK") < received.index(b"404 Not Found")


def test_a_chunked_body_is_understood(azure: Simulated, line: socket.socket) -> None:
    event_id = azure.create(set="west", type="Reboot").encode()
    head = POLL.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    line.sendall(head)
    assert read_until(line, 1, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    for part in (b'{"StartRequests":[{"EventId":"', event_id, b'"}]}', b""):
        line.sendall(b"%x\r\n%b\r\n" % (len(part), part))
    assert b"200 OK" in read_until(line, 1, b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"GET http://169.254.169.254/metadata/scheduledevents HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
        (POLL + b"Connection: close\r\n\r\n", b"200"),
        (POLL.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n", b"200"),
    ],
)
def test_afterwards_the_connection_is_closed(line: socket.socket, sent: bytes, status: bytes) -> None:
    line.sendall(sent)
    received = b""
    while part := line.recv(65536):
        received += part
    assert received.startswith(b"HTTP/1.1 " + status)
