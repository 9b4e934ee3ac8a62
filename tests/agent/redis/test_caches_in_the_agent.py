"""The agent as a process, with caches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire

from tests.agent.agents import VM_IDS, Agents
from tests.agent.backend.test_signatures import OURS, signed_by
from tests.agent.fleet_double import FleetDouble, eventually
from tests.agent.redis.servers import CacheServer

pytestmark = pytest.mark.real_time

LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000"
# Twice what a metrics agent that everybody runs takes.
MOST_MEGABYTES = 2 * 20.9
MOST_MEGABYTES_SIGNED = 44


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[CacheServer]]:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(CacheServer(tmp_path / name))
    yield made
    for server in made:
        server.stop()


def host(number: int) -> str:
    return f"cache-{number}.redis.cache.windows.net"


def caches(servers: list[CacheServer]) -> str:
    return " ".join(
        f"redis://{host(number)}?connect=127.0.0.1:{server.port}&tier=standard&tls=false"
        for number, server in enumerate(servers)
    )


def coverage(fleet: FleetDouble) -> list[tuple[str, str]]:
    return [(report["data"]["cache"], report["data"]["state"]) for report in fleet.reports(wire.COVERAGE)]


def megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def test_lines_of_several_caches_reach_the_backend_within_two_seconds(
    agents: Agents, fleet: FleetDouble, servers: list[CacheServer]
) -> None:
    agents.at_work(DRYDOCK_REDIS_CACHES=caches(servers))
    eventually(lambda: sorted(coverage(fleet)) == [(host(0), "subscribed"), (host(1), "subscribed")])
    for number, server in enumerate(servers):
        begun = time.monotonic()
        server.say(f"{LINE}|{number}")
        eventually(lambda number=number: len(fleet.reports(wire.REDIS)) == number + 1)
        assert time.monotonic() - begun < 2
    found = [(report["data"]["cache"], report["data"]["raw"]) for report in fleet.reports(wire.REDIS)]
    assert found == [(host(0), f"{LINE}|0"), (host(1), f"{LINE}|1")]


def test_a_stop_takes_less_than_a_second_and_is_reported_by_the_next_agent(
    agents: Agents, fleet: FleetDouble, servers: list[CacheServer]
) -> None:
    given = {"DRYDOCK_REDIS_CACHES": caches(servers[:1])}
    first = agents.at_work(**given)
    eventually(lambda: coverage(fleet) == [(host(0), "subscribed")])
    begun = time.monotonic()
    assert first.stop() == 0
    # Under a second where nothing else runs.
    assert time.monotonic() - begun < 4
    agents.run(**given)
    eventually(lambda: [state for _, state in coverage(fleet)] == ["subscribed", "lost", "subscribed"])
    assert fleet.reports(wire.COVERAGE)[1]["data"]["reason"] == "the agent stopped"


def test_unavailable_or_silent_cache_does_not_disturb_others(
    agents: Agents, fleet: FleetDouble, servers: list[CacheServer]
) -> None:
    servers[1].stop()
    silent = "rediss://shop.westeurope.redis.azure.net:10000"
    process = agents.at_work(DRYDOCK_REDIS_CACHES=f"{caches(servers)} {silent}")
    eventually(
        lambda: (
            sorted(coverage(fleet))
            == [(host(0), "subscribed"), (host(1), "lost"), ("shop.westeurope.redis.azure.net", "unsupported")]
        )
    )
    assert "publishes no maintenance notifications" in process.said()


def test_check_says_of_each_cache_whether_it_can_be_heard(agents: Agents, servers: list[CacheServer]) -> None:
    servers[1].stop()
    silent = "rediss://shop.westeurope.redis.azure.net:10000"
    given = caches(servers)
    said = agents.command("check", DRYDOCK_REDIS_CACHES=f"{given} {silent}")
    assert said.returncode == 1
    assert f"ok   The notifications of {host(0)} can be heard." in said.stdout
    assert f"BAD  The notifications of {host(1)} cannot be heard: " in said.stdout
    assert "BAD  shop.westeurope.redis.azure.net is no Azure Cache for Redis of the tiers" in said.stdout
    assert agents.command("check", DRYDOCK_REDIS_CACHES=caches(servers[:1])).returncode == 0


def test_a_refused_key_is_said_by_check(agents: Agents, servers: list[CacheServer]) -> None:
    with servers[0].client() as client:
        client.config_set("requirepass", "right")
    said = agents.command("check", DRYDOCK_REDIS_CACHES=caches(servers[:1]))
    assert f"BAD  {host(0)} refuses this machine: " in said.stdout


def test_without_the_redis_client_the_agent_names_the_package_and_continues(
    agents: Agents, fleet: FleetDouble, tmp_path: Path, servers: list[CacheServer]
) -> None:
    # Where it is not installed: a module of that name that cannot be imported.
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "redis.py").write_text("raise ModuleNotFoundError('No module named redis', name='redis')\n")
    path = os.pathsep.join(word for word in (str(tmp_path / "without"), os.environ.get("PYTHONPATH", "")) if word)
    agents.at_work(DRYDOCK_REDIS_CACHES=caches(servers[:1]), PYTHONPATH=path)
    eventually(lambda: coverage(fleet) == [(host(0), "lost")])
    assert "drydock-agent[redis]" in fleet.reports(wire.COVERAGE)[0]["data"]["reason"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_with_caches_it_stays_small(agents: Agents, fleet: FleetDouble, servers: list[CacheServer]) -> None:
    process = agents.at_work(DRYDOCK_REDIS_CACHES=caches(servers))
    eventually(lambda: len(coverage(fleet)) == 2)
    for server in servers:
        server.say(LINE)
    eventually(lambda: len(fleet.reports(wire.REDIS)) == 2)
    assert megabytes(process.pid) <= MOST_MEGABYTES


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_with_caches_and_signed_orders_it_stays_small(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, servers: list[CacheServer]
) -> None:
    fleet.signing_keys = [{"id": OURS.name, "public_key": OURS.public.public_key}]
    event_id = simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    process = agents.at_work(DRYDOCK_REDIS_CACHES=caches(servers), DRYDOCK_SIGNED_ORDERS="always")
    eventually(lambda: len(coverage(fleet)) == 2)
    for server in servers:
        server.say(LINE)
    with fleet.lock:
        signed_by(fleet.order(VM_IDS["web-vm1"], event_id, order_id="good"), OURS)
    (receipt,) = eventually(fleet.receipts)
    assert receipt["azure_status"] == 200
    assert megabytes(process.pid) <= MOST_MEGABYTES_SIGNED


def test_without_caches_the_client_is_not_even_imported(agents: Agents) -> None:
    program = (
        "import sys, threading, time; sys.argv = ['drydock-agent', 'once']\n"
        "from drydock_agent.__main__ import main\n"
        "assert main() == 0, 'once failed'\n"
        "print(sorted(name for name in sys.modules if 'redis' in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **agents.environment()},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"
