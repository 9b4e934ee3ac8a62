"""`python -m azure_simulator`: its fleet file, its options and page, and its HTTP at the level of bytes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import azure_simulator
import pytest
from azure_simulator import fleet
from azure_simulator.documents import VERSIONS
from azure_simulator.faults import STAGES
from azure_simulator.stories import STORIES

from fleet.embedded.folder import is_running
from tests.processes import wait_for
from tests.simulator.asking import Simulated, ask, simulated, west_norway

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
    ("options", "status", "complaint"),
    [
        (["--listen", "somewhere"], 2, "--listen takes HOST:PORT"),
        (["--as-vm", "vm99"], 2, "no machine 'vm99'"),
        (["--fleet", "/nonexistent/fleet.json"], 2, "cannot read the fleet file"),
        (["--listen", "a taken port"], 1, "cannot listen on"),
    ],
)
def test_a_mistake_on_the_command_line_gets_one_clear_sentence(
    azure: Simulated, options: list[str], status: int, complaint: str
) -> None:
    taken = urlsplit(azure.url).netloc
    words = [taken if word == "a taken port" else word for word in ("--listen", "127.0.0.1:0", *options)]
    command = [sys.executable, "-m", "azure_simulator", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=10, check=False)
    assert done.returncode == status
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_requests_in_one_piece_and_in_many_are_answered_in_order(line: socket.socket) -> None:
    line.sendall((POLL + b"\r\n") * 3)
    assert read_until(line, 3).count(b"HTTP/1.1 200 OK") == 3
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

    # Placement groups stay the same from load to load, and belong to scale sets only.
    assert fleet.load(DEMO_FLEET) == demo
    assert [bool(each.placement_group_id) for each in demo.sets] == [False, True, False, False]


FIRST = ("sets", 0)


@pytest.mark.parametrize(
    ("place", "change", "complaint"),
    [
        ((), {"sets": None}, "sets: expected a list, found nothing"),
        ((), {"sets": []}, "sets: there must be at least one"),
        ((), {"machines": []}, "does not know machines"),
        ((), {"sets": west_norway()["sets"][:1] * 2}, "two sets have the same kind"),
        (FIRST, {"kind": "zoo"}, "sets[0].kind: 'zoo' is none of"),
        (FIRST, {"kind": "standalone"}, "a standalone set has one machine"),
        (FIRST, {"load_balancer": {"address": "51.0.0.1"}}, "load_balancer.ports: expected an"),
        (FIRST, {"load_balancer": {"address": "a", "ports": {"80": 0}}}, "ports: 0 is no port"),
        (("sets", 1), {"machines": []}, "sets[1].machines: there must be at least one"),
        ((*FIRST, "machines", 1), {"name": None}, "sets[0].machines[1].name: is missing"),
        ((*FIRST, "machines", 1), {"id": "WestNO_0"}, "two machines have the same id: WestNO_0"),
        ((*FIRST, "machines", 1), {"name": "WestNO_0"}, "two machines of the set have the same name: westno_0"),
        ((*FIRST, "machines", 1), {"vm_id": "WestNO_0-vm-id"}, "two machines have the same vm_id"),
        ((*FIRST, "machines", 0), {"id": "a/b"}, "must do as one part of a URL's path"),
        ((*FIRST, "machines", 0), {"fault_domain": "1"}, "expected a whole number from 0"),
        ((*FIRST, "machines", 0), {"tags": {"a": 1}}, "every value must be text"),
        (("caches", 0), {"tier": None}, "caches[0].tier: is missing"),
        # A name may repeat in another set.
        (("sets", 2, "machines", 0), {"name": "WestNO_0"}, ""),
    ],
)
def test_a_mistake_is_named_with_its_place(
    place: tuple[str | int, ...], change: dict[str, Any], complaint: str
) -> None:
    whole: Any = west_norway()
    part = whole
    for step in place:
        part = part[step]
    part |= change
    for name in [name for name, value in change.items() if value is None]:
        del part[name]
    with pytest.raises(fleet.FleetError, match=re.escape(complaint)) if complaint else nullcontext():
        fleet.parse(whole)


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
    usage = subprocess.check_output([sys.executable, "-m", "azure_simulator", "--help"], text=True, timeout=10)
    options = set(re.findall(r"--[a-z-]+", usage)) - {"--help"}
    assert len(options) == 9
    assert [option for option in sorted(options) if f"`{option}" not in PAGE] == []


# The requests of both documents' samples, byte for byte as their programs put them on the wire.
# Those of curl and of requests were recorded. Those of PowerShell have the headers that .NET's two HTTP clients write,
# in their order: Windows PowerShell asks for `100-continue` before it sends a body, PowerShell 7 does not.

# The ids of the documents' own samples.
LOWER = "f020ba2e-3bc0-4c40-a10b-86575a9eabd5"
UPPER = "5DD55B64-45AD-49D3-BBC9-F57D4EA97BD7"
SAMPLED_VERSIONS = ["2017-08-01", "2020-07-01"]

WINDOWS = "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.17763.1490"
SEVEN = "Mozilla/5.0 (Linux; Debian GNU/Linux 12 (bookworm); ) PowerShell/7.4.6"

HOST, METADATA, ACCEPT = "Host: 169.254.169.254", "Metadata: true", "Accept: */*"
GETS = {
    "curl": [HOST, "User-Agent: curl/7.88.1", ACCEPT, "Metadata:true"],
    "requests": [
        HOST, "User-Agent: python-requests/2.34.2", "Accept-Encoding: gzip, deflate", ACCEPT, "Connection: keep-alive",
        METADATA,
    ],
    "Windows PowerShell": [METADATA, f"User-Agent: {WINDOWS}", HOST, "Connection: Keep-Alive"],
    "PowerShell 7": [HOST, METADATA, f"User-Agent: {SEVEN}", "Accept-Encoding: gzip, deflate, br"],
}  # fmt: skip
FORM = "Content-Type: application/x-www-form-urlencoded"
POSTS = {
    "curl": [*GETS["curl"], "Content-Length: {}", FORM],
    "requests": [*GETS["requests"], "Content-Length: {}"],
    "Windows PowerShell": [
        METADATA, f"User-Agent: {WINDOWS}", FORM, HOST, "Content-Length: {}", "Expect: 100-continue",
        "Connection: Keep-Alive",
    ],
    "PowerShell 7": [*GETS["PowerShell 7"], FORM, "Content-Length: {}"],
}  # fmt: skip
ON_ONE_LINE = '{"StartRequests": [{"EventId": "%s"}]}'
# As ConvertTo-Json of Windows PowerShell indents it, and as the page prints it.
INDENTED = (
    '{\r\n    "StartRequests":  [\r\n                          {\r\n                              "EventId":  "%s"\r\n'
    "                          }\r\n                      ]\r\n}"
)
PRINTED = '{\n\t"StartRequests" : [\n\t\t{\n\t\t\t"EventId": "%s"\n\t\t}\n\t]\n}'


@pytest.fixture
def at_root() -> Iterator[Simulated]:
    with simulated(as_vm="WestNO_0") as running:
        yield running


def head(method: str, version: str, lines: list[str]) -> bytes:
    target = f"/metadata/scheduledevents?api-version={version}"
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode()


def exchange(url: str, *parts: bytes) -> tuple[bytes, bytes]:
    """Send the parts, each after an answer to the one before where that is a head that waits; the last answer."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=5) as line:
        for number, part in enumerate(parts):
            line.sendall(part)
            if number + 1 < len(parts) and b"100-continue" in part:
                assert line.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        received = b""
        while b"\r\n\r\n" not in received:
            received += line.recv(65536)
        answer, _, body = received.partition(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += line.recv(65536)
    return answer.split(b"\r\n")[0], body


@pytest.mark.parametrize("version", SAMPLED_VERSIONS)
@pytest.mark.parametrize("program", GETS)
def test_a_query_is_answered(at_root: Simulated, program: str, version: str) -> None:
    event_id = at_root.create(set="west", type="Reboot")
    status, body = exchange(at_root.url, head("GET", version, GETS[program]))
    assert status == b"HTTP/1.1 200 OK"
    [event] = json.loads(body)["Events"]
    assert event["EventId"] == event_id
    assert ("DurationInSeconds" in event) == (version == "2020-07-01")


@pytest.mark.parametrize("version", SAMPLED_VERSIONS)
@pytest.mark.parametrize("body", [ON_ONE_LINE, INDENTED, PRINTED], ids=["one line", "indented", "printed"])
@pytest.mark.parametrize("event_id", [LOWER, UPPER])
@pytest.mark.parametrize("program", POSTS)
def test_an_approval_starts_the_event(at_root: Simulated, program: str, event_id: str, body: str, version: str) -> None:
    at_root.create(set="west", type="Reboot", event_id=event_id)
    payload = (body % event_id).encode()
    lines = [line.format(len(payload)) for line in POSTS[program]]
    status, _ = exchange(at_root.url, head("POST", version, lines), payload)
    assert status == b"HTTP/1.1 200 OK"
    assert at_root.event(event_id)["started_by"] == "approval"
