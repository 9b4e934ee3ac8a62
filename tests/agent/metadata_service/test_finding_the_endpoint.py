"""Endpoint discovery outside a virtual network: the machine, a DHCP server and a wire server in network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agents import FLEET, VM_IDS
from tests.namespaces import Namespace, missing
from tests.processes import Process, free_port, running, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

WIRE_SERVER = "168.63.129.16"
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
        return self.start(self.host, "dhcp", str(RESPONDER), "v1", WIRE_SERVER, str(ignored), until="ready")

    def metadata(self) -> Process:
        fleet = self.folder / "fleet.json"
        fleet.write_text(json.dumps(FLEET), encoding="utf-8")
        options = ["--fleet", str(fleet), "--as-vm", "web-vm1", "--listen", self.control]
        options += ["--wire-server", f"{WIRE_SERVER}:80"]
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
        host = stack.enter_context(Namespace(beside=machine))
        wire = ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(host.pid)]
        machine.run(*wire)
        for namespace, name, address in ((machine, "v0", "10.0.0.4/24"), (host, "v1", "10.0.0.1/24")):
            namespace.run("ip", "address", "add", address, "dev", name)
            namespace.run("ip", "link", "set", name, "up")
        host.run("ip", "address", "add", f"{WIRE_SERVER}/32", "dev", "lo")
        machine.run("ip", "route", "add", WIRE_SERVER, "via", "10.0.0.1")
        yield Classic(machine, host, tmp_path, stack)


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
    assert (classic.folder / "state" / "endpoint").read_text() == f"{WIRE_SERVER}\n"
    check = subprocess.run(
        classic.machine.command(sys.executable, "-m", "drydock_agent", "check"),
        env=classic.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (
        f"ok   The metadata service is not at the configured address: DHCP named {WIRE_SERVER} earlier." in check.stdout
    )
    assert "ok   The metadata service lists 0 scheduled events." in check.stdout


def test_what_was_found_is_used_again_as_long_as_something_answers_there(classic: Classic) -> None:
    dhcp, metadata = classic.dhcp(), classic.metadata()
    for _ in range(2):
        assert classic.find() == [f"http://{WIRE_SERVER}", "True"]
    assert dhcp.said().count("answered") == 1
    metadata.stop()
    assert classic.find() == [f"http://{WIRE_SERVER}", "True"]
    assert dhcp.said().count("answered") == 2, "asked anew where nothing answers"


def test_it_asks_five_times_with_longer_and_longer_waits(classic: Classic) -> None:
    dhcp = classic.dhcp(ignored=5)
    assert classic.find() == ["http://169.254.169.254", "True", "10.0", "30.0", "60.0", "60.0"]
    assert classic.find() == [f"http://{WIRE_SERVER}", "True"]
    assert dhcp.said().split() == ["ready", *["ignored"] * 5, "answered"]


def test_with_a_route_to_the_usual_address_discovery_runs_only_on_request(classic: Classic) -> None:
    dhcp = classic.dhcp()
    classic.machine.run("ip", "route", "add", "default", "via", "10.0.0.1")
    assert classic.find() == ["http://169.254.169.254", "False"]
    assert dhcp.said() == "ready\n"
    assert classic.find(DRYDOCK_DISCOVER_ENDPOINT="always") == [f"http://{WIRE_SERVER}", "True"]


def test_a_network_that_was_merely_late_ends_the_search(classic: Classic) -> None:
    late = FIND.replace("waited.append", "lambda _: os.system('ip route add default via 10.0.0.1') or None")
    said = classic.machine.run(sys.executable, "-c", late, env=classic.environment)
    assert said.split() == ["http://169.254.169.254", "False"]


def test_without_the_right_it_says_which_one_it_needs(classic: Classic) -> None:
    program = ["setpriv", "--bounding-set=-net_bind_service", sys.executable, "-c", FIND]
    done = subprocess.run(
        classic.machine.command(*program),
        env=classic.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["http://169.254.169.254", "True"]
    assert "UDP port 68, which needs root or the capability CAP_NET_BIND_SERVICE" in done.stderr
