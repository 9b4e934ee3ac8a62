"""`python -m azure_simulator`: its fleet file, its options and page, and its HTTP at the level of bytes."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import azure_simulator
import pytest
from azure_simulator import fleet
from azure_simulator.child_process import ControlError, RunningSimulator
from azure_simulator.documents import VERSIONS
from azure_simulator.faults import STAGES
from azure_simulator.stories import STORIES

from fleet.embedded.folder import is_running
from tests.processes import wait_for
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
    wait_for(lambda: not is_running(child), seconds=5, what="the simulator ends")


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


DEMO_FLEET = Path(azure_simulator.__file__).with_name("demo_fleet.json")


def test_the_demo_fleet_is_as_promised() -> None:
    demo = fleet.load(DEMO_FLEET)
    sizes = {(each.kind, each.name): len(each.machines) for each in demo.sets}
    assert sizes == {
        ("availability_set", "web"): 6,
        ("scale_set", "workers"): 4,
        ("cloud_service", "legacy"): 2,
        ("standalone", "jumpbox"): 1,
    }
    web = demo.find_set("web")
    assert len({(m.fault_domain, m.update_domain) for m in web.machines}) == 6
    assert [m.name for m in demo.find_set("legacy").machines] == ["FrontEnd_IN_0", "BackEnd_IN_0"]
    assert len(demo.caches) == 2


def test_placement_groups_stay_the_same_and_belong_to_scale_sets_only() -> None:
    first, second = fleet.load(DEMO_FLEET), fleet.load(DEMO_FLEET)
    assert first == second
    assert [bool(each.placement_group_id) for each in first.sets] == [False, True, False, False]


def twice(key: str) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        machines = whole["sets"][0]["machines"]
        machines[1][key] = machines[0][key]

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda whole: whole.pop("sets"), "sets: expected a list, found nothing"),
        (lambda whole: whole.update(sets=[]), "sets: there must be at least one"),
        (lambda whole: whole.update(machines=[]), "does not know machines"),
        (lambda whole: whole["sets"][0].update(kind="zoo"), "sets[0].kind: 'zoo' is none of"),
        (lambda whole: whole["sets"][0].update(kind="standalone"), "a standalone set has one machine"),
        (lambda whole: whole["sets"][1].update(machines=[]), "sets[1].machines: there must be at least one"),
        (lambda whole: whole["sets"][0]["machines"][1].pop("name"), "sets[0].machines[1].name: is missing"),
        (lambda whole: whole["sets"][0]["machines"][0].update(id="a/b"), "must do as one part of a URL's path"),
        (lambda whole: whole["sets"][0]["machines"][0].update(fault_domain="1"), "expected a whole number from 0"),
        (lambda whole: whole["sets"][0]["machines"][0].update(tags={"a": 1}), "every value must be text"),
        (lambda whole: whole["sets"].append(copy.deepcopy(whole["sets"][0])), "two sets have the same kind"),
        (twice("id"), "two machines have the same id: WestNO_0"),
        (twice("name"), "two machines of the set have the same name: westno_0"),
        (twice("vm_id"), "two machines have the same vm_id"),
        (
            lambda whole: whole["sets"][0].update(load_balancer={"address": "51.0.0.1"}),
            "load_balancer.ports: expected an",
        ),
        (
            lambda whole: whole["sets"][0].update(load_balancer={"address": "a", "ports": {"80": 0}}),
            "ports: 0 is no port",
        ),
        (lambda whole: whole["caches"][0].pop("tier"), "caches[0].tier: is missing"),
    ],
)
def test_a_mistake_is_named_with_its_place(change: Callable[[dict[str, Any]], Any], complaint: str) -> None:
    whole = west_norway()
    change(whole)
    with pytest.raises(fleet.FleetError) as caught:
        fleet.parse(whole)
    assert complaint in str(caught.value)


def test_names_may_repeat_in_different_sets() -> None:
    whole = west_norway()
    whole["sets"][2]["machines"][0]["name"] = "WestNO_0"
    assert len(fleet.parse(whole).sets) == 3


def test_a_file_that_is_no_json_or_not_there_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    for path in (broken, tmp_path / "missing.json"):
        with pytest.raises(fleet.FleetError, match=path.name):
            fleet.load(path)


PAGE = (Path(__file__).parents[2] / "docs" / "dev" / "simulator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*VERSIONS, *STAGES, *STORIES])
def test_the_page_names_every_version_fault_and_story(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_page_names_every_option() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "azure_simulator", "--help"], capture_output=True, text=True, check=True, timeout=10
    )
    options = set(re.findall(r"--[a-z-]+", done.stdout)) - {"--help"}
    assert len(options) == 9
    assert [option for option in sorted(options) if f"`{option}" not in PAGE] == []
