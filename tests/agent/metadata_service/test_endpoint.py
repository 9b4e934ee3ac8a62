"""Endpoint discovery: its packets, when it begins, and a machine and a wire server in network namespaces."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from drydock_agent.metadata_service.discovery import endpoint_in, request
from drydock_agent.metadata_service.endpoint import needs_discovery
from drydock_agent.settings.load import Settings, load
from drydock_agent.state_folder import StateFolder
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import FLEET, VM_IDS, SteppedClock
from tests.namespaces import Namespace, missing
from tests.processes import Process, free_port, running, wait_for

XID, MAC = b"\x01\x02\x03\x04", b"\x00\x0d\x3a\x11\x22\x33"

WIRE_SERVER = b"\xf5\x04\xa8\x3f\x81\x10"


def answer(
    options: bytes, *, op: int = 2, xid: bytes = XID, mac: bytes = MAC, cookie: bytes = b"\x63\x82\x53\x63"
) -> bytes:
    return struct.pack("!BBBB4s", op, 1, 6, 0, xid) + b"\0" * 20 + mac.ljust(16, b"\0") + b"\0" * 192 + cookie + options


def configured(**more: str) -> Settings:
    return load({"DRYDOCK_FLEET_URL": "https://drydock.example", **more})


def test_the_request_is_a_broadcast_that_asks_for_the_option_and_takes_no_lease() -> None:
    packet = request(XID, MAC)
    assert len(packet) == 300
    assert packet[:8] == b"\x01\x01\x06\x00" + XID
    assert packet[10:12] == b"\x80\x00", "the answer is to be a broadcast too"
    assert packet[28:34] == MAC
    assert packet[236:247] == b"\x63\x82\x53\x63" + b"\x35\x01\x01" + b"\x37\x01\xf5" + b"\xff"


@pytest.mark.parametrize("options", [WIRE_SERVER + b"\xff", WIRE_SERVER, b"\0\0\x35\x01\x02" + WIRE_SERVER + b"\xff\0"])
def test_the_address_is_the_four_bytes_of_option_245(options: bytes) -> None:
    assert endpoint_in(answer(options), XID, MAC) == "168.63.129.16"


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        answer(b""),
        answer(WIRE_SERVER)[:200],
        answer(WIRE_SERVER, op=1),
        answer(WIRE_SERVER, xid=b"\0\0\0\0"),
        answer(WIRE_SERVER, mac=b"\0" * 6),
        answer(WIRE_SERVER, cookie=b"\0\0\0\0"),
        *(answer(first + WIRE_SERVER) for first in (b"\xff", b"\x35\x01\x06")),
        *(answer(b"\xf5" + rest) for rest in (b"", b"\x03\x01\x02\x03\xff", b"\x04\x01\x02")),
        *(answer(b"\xf5\x04" + ip) for ip in (b"\0" * 4, b"\x7f\0\0\1", b"\xff" * 4, b"\xe0\0\0\1")),
    ],
)
def test_what_is_no_usable_answer_to_this_request_is_none(packet: bytes) -> None:
    assert endpoint_in(packet, XID, MAC) is None


@given(st.binary(max_size=400))
def test_no_options_make_the_reader_raise(options: bytes) -> None:
    endpoint_in(answer(options), XID, MAC)
    endpoint_in(options, XID, MAC)


def test_it_begins_only_when_asked_for_or_when_there_is_no_way_to_the_usual_address() -> None:
    elsewhere = {"DRYDOCK_IMDS_URL": "http://127.0.0.1:8169"}
    assert not needs_discovery(configured(**elsewhere)), "an address that was configured is the one"
    assert needs_discovery(configured(**elsewhere, DRYDOCK_DISCOVER_ENDPOINT="always"))
    assert not needs_discovery(configured(DRYDOCK_DISCOVER_ENDPOINT="never"))


def test_the_address_is_kept_and_nonsense_in_its_file_is_none(tmp_path: Path, clock: SteppedClock) -> None:
    state = StateFolder(tmp_path, clock)
    assert state.endpoint() == ""
    state.keep_endpoint("168.63.129.16")
    assert StateFolder(tmp_path, clock).endpoint() == "168.63.129.16"
    (tmp_path / "endpoint").write_bytes(b"\xff nonsense")
    assert state.endpoint() == ""


WIRE_SERVER_IP = "168.63.129.16"

RESPONDER = Path(__file__).with_name("dhcp_responder.py")

# Waits without waiting, and tells what it would have waited.
FIND = """
import os, sys
from pathlib import Path
from drydock_agent import clock
from drydock_agent.settings import load as config
from drydock_agent.metadata_service import endpoint
from drydock_agent import log_limiter as limiter
from drydock_agent import state_folder as state
settings = config.load()
waited = []
time = clock.Clock()
folder = state.StateFolder(settings.state_dir, time)
folder.prepare()
found = endpoint.find(settings, folder, limiter.LogLimiter(time), waited.append, listen_seconds=0.5)
print(found.url, found.is_discovered, *waited)
"""

CALL = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(sys.argv[1], timeout=10).read().decode())
"""


class Classic:
    """The machine's side and the host's side, and what runs on each."""

    def __init__(self, machine: Namespace, host: Namespace, folder: Path, stack: ExitStack) -> None:
        self.machine = machine
        self.host = host
        self.folder = folder
        self.stack = stack
        self.control = f"127.0.0.1:{free_port()}"

    def start(self, namespace: Namespace, name: str, *command: str, until: str) -> Process:
        log = self.folder / f"{name}.log"
        process = self.stack.enter_context(
            running(namespace.command(sys.executable, *command), environment=self.environment, log=log)
        )
        wait_for(lambda: until in process.said(), seconds=20, what=f"{name} says {until!r}")
        return process

    def dhcp(self, *, ignored: int = 0) -> Process:
        return self.start(self.host, "dhcp", str(RESPONDER), "v1", WIRE_SERVER_IP, str(ignored), until="ready")

    def metadata(self) -> Process:
        fleet = self.folder / "fleet.json"
        fleet.write_text(json.dumps(FLEET), encoding="utf-8")
        options = ["--fleet", str(fleet), "--as-vm", "web-vm1", "--listen", self.control]
        options += ["--wire-server", f"{WIRE_SERVER_IP}:80"]
        return self.start(self.host, "metadata", "-m", "azure_simulator", *options, until="wire server on")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DRYDOCK_FLEET_URL": "http://127.0.0.1:9",
            "DRYDOCK_STATE_DIR": str(self.folder / "state"),
        }

    def find(self, *before: str, **more: str) -> list[str]:
        command = [*before, sys.executable, "-c", FIND]
        return self.machine.run(*command, env={**self.environment, **more}).split()

    def asked(self) -> list[dict[str, Any]]:
        """What the metadata service was asked."""
        text = self.host.run(sys.executable, "-c", CALL, f"http://{self.control}/control/log")
        entries: list[dict[str, Any]] = json.loads(text)
        return entries


@pytest.fixture
def classic(tmp_path: Path) -> Iterator[Classic]:
    """Two namespaces and a wire; the machine has an address and a way to the wire server, and no other route."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        machine = stack.enter_context(Namespace())
        host = stack.enter_context(Namespace(neighbour=machine))
        wire = ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(host.pid)]
        machine.run(*wire)
        for namespace, name, address in ((machine, "v0", "10.0.0.4/24"), (host, "v1", "10.0.0.1/24")):
            namespace.run("ip", "address", "add", address, "dev", name)
            namespace.run("ip", "link", "set", name, "up")
        host.run("ip", "address", "add", f"{WIRE_SERVER_IP}/32", "dev", "lo")
        machine.run("ip", "route", "add", WIRE_SERVER_IP, "via", "10.0.0.1")
        yield Classic(machine, host, tmp_path, stack)


@pytest.mark.flow
@pytest.mark.real_time
def test_without_a_way_to_the_usual_address_the_agent_finds_the_wire_server_and_polls_it(classic: Classic) -> None:
    dhcp = classic.dhcp()
    classic.metadata()
    classic.start(classic.machine, "agent", "-m", "drydock_agent", "run", until=f"This is machine {VM_IDS['web-vm1']}")
    wait_for(
        lambda: [entry for entry in classic.asked() if "scheduledevents" in entry["path"] and entry["status"] == 200],
        seconds=20,
        what="the agent polls the wire server",
    )
    assert dhcp.said() == "ready\nanswered\n"
    assert (classic.folder / "state" / "endpoint").read_text() == f"{WIRE_SERVER_IP}\n"
    check = subprocess.run(
        classic.machine.command(sys.executable, "-m", "drydock_agent", "check"),
        env=classic.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (
        f"ok   The metadata service is not at the configured address: DHCP named {WIRE_SERVER_IP} earlier."
        in check.stdout
    )
    assert "ok   The metadata service lists 0 scheduled events, with api-version 2024-07-09." in check.stdout


@pytest.mark.flow
@pytest.mark.real_time
def test_it_asks_five_times_and_uses_what_was_found_as_long_as_something_answers_there(classic: Classic) -> None:
    program = ["setpriv", "--bounding-set=-net_bind_service", sys.executable, "-c", FIND]
    without_right = subprocess.run(
        classic.machine.command(*program),
        env=classic.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert without_right.stdout.split() == ["http://169.254.169.254", "True"]
    assert "UDP port 68, which needs root or the capability CAP_NET_BIND_SERVICE" in without_right.stderr
    dhcp, metadata = classic.dhcp(ignored=5), classic.metadata()
    assert classic.find() == ["http://169.254.169.254", "True", "10.0", "30.0", "60.0", "60.0"]
    for _ in range(2):
        assert classic.find() == [f"http://{WIRE_SERVER_IP}", "True"]
    assert dhcp.said().split() == ["ready", *["ignored"] * 5, "answered"]
    metadata.stop()
    assert classic.find() == [f"http://{WIRE_SERVER_IP}", "True"]
    assert dhcp.said().count("answered") == 2, "queried again while nothing answers"


@pytest.mark.flow
@pytest.mark.real_time
def test_with_a_route_to_the_usual_address_discovery_ends_and_runs_only_on_request(classic: Classic) -> None:
    # A network that was merely late.
    late = FIND.replace("waited.append", "lambda _: os.system('ip route add default via 10.0.0.1') or None")
    found = classic.machine.run(sys.executable, "-c", late, env=classic.environment)
    assert found.split() == ["http://169.254.169.254", "False"]
    dhcp = classic.dhcp()
    assert classic.find() == ["http://169.254.169.254", "False"]
    assert dhcp.said() == "ready\n"
    assert classic.find(DRYDOCK_DISCOVER_ENDPOINT="always") == [f"http://{WIRE_SERVER_IP}", "True"]
