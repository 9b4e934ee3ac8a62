"""The agent as a process, with caches."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import read_orders

from tests.agent.agents import VM_IDS, Agents
from tests.agent.backend.test_orders import OURS
from tests.agent.fleet_double import FleetDouble, eventually
from tests.agent.redis.conftest import CacheServer

pytestmark = pytest.mark.real_time

LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000"
# Twice what a metrics agent that everybody runs takes.
MOST_MEGABYTES = {"never": 2 * 20.9, "always": 44}


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


def test_check_reports_each_cache_and_one_away_disturbs_no_other(agents: Agents, servers: list[CacheServer]) -> None:
    servers[1].stop()
    addresses = f"{caches(servers)} rediss://shop.westeurope.redis.azure.net:10000"
    ended = agents.command("check", DRYDOCK_REDIS_CACHES=addresses)
    assert ended.returncode == 1
    assert f"ok   The notifications of {host(0)} can be heard." in ended.stdout
    assert f"BAD  The notifications of {host(1)} cannot be heard: " in ended.stdout
    assert "BAD  shop.westeurope.redis.azure.net is no Azure Cache for Redis of the tiers" in ended.stdout
    assert agents.command("check", DRYDOCK_REDIS_CACHES=caches(servers[:1])).returncode == 0
    process = agents.at_work(DRYDOCK_REDIS_CACHES=addresses)
    states = [(host(0), "subscribed"), (host(1), "lost"), ("shop.westeurope.redis.azure.net", "unsupported")]
    eventually(lambda: sorted(coverage(agents.fleet)) == states)
    assert "publishes no maintenance notifications" in process.said()
    process.stop()
    servers[0].configure("requirepass", "right")
    refused = agents.command("check", DRYDOCK_REDIS_CACHES=caches(servers[:1]))
    assert f"BAD  {host(0)} refuses this machine: " in refused.stdout


def test_a_missing_redis_client_is_named(agents: Agents, tmp_path: Path, servers: list[CacheServer]) -> None:
    # Where it is not installed: a module of that name that cannot be imported.
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "redis.py").write_text("raise ModuleNotFoundError('No module named redis', name='redis')\n")
    path = os.pathsep.join(word for word in (str(tmp_path / "without"), os.environ.get("PYTHONPATH", "")) if word)
    agents.at_work(DRYDOCK_REDIS_CACHES=caches(servers[:1]), PYTHONPATH=path)
    eventually(lambda: coverage(agents.fleet) == [(host(0), "lost")])
    assert "drydock-agent[redis]" in agents.fleet.reports(wire.COVERAGE)[0]["data"]["reason"]


@pytest.mark.parametrize("signed", MOST_MEGABYTES)
def test_lines_arrive_within_two_seconds_at_a_small_agent(
    agents: Agents, servers: list[CacheServer], signed: str
) -> None:
    agents.fleet.signing_keys = [{"id": OURS.name, "public_key": OURS.public.public_key}]
    event_id = agents.announce("Reboot")
    process = agents.at_work(DRYDOCK_REDIS_CACHES=caches(servers), DRYDOCK_SIGNED_ORDERS=signed)
    eventually(lambda: sorted(coverage(agents.fleet)) == [(host(0), "subscribed"), (host(1), "subscribed")])
    for number, server in enumerate(servers):
        begun = time.monotonic()
        server.say(f"{LINE}|{number}")
        eventually(lambda number=number: len(agents.fleet.reports(wire.REDIS)) == number + 1)
        assert time.monotonic() - begun < 2
    lines = [(report["data"]["cache"], report["data"]["raw"]) for report in agents.fleet.reports(wire.REDIS)]
    assert lines == [(host(0), f"{LINE}|0"), (host(1), f"{LINE}|1")]
    with agents.fleet.lock:
        order = agents.fleet.order(VM_IDS["web-vm1"], event_id, order_id="good")
        [read], _ = read_orders([order])
        order["signatures"] = [{"key": OURS.name, "value": OURS.sign(wire.order_text(read))}]
    (receipt,) = eventually(agents.fleet.receipts)
    assert receipt["azure_status"] == 200
    if sys.platform.startswith("linux"):
        (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        assert int(kilobytes) / 1024 <= MOST_MEGABYTES[signed]


def test_without_caches_nothing_large_is_imported(agents: Agents) -> None:
    program = "import sys; from drydock_agent.__main__ import main; assert main() == 0; print(*sys.modules)"
    command = [sys.executable, "-c", program, "once"]
    loaded = subprocess.check_output(command, env={**os.environ, **agents.environment()}, text=True, timeout=30).split()
    large = {"asyncio", "charset_normalizer", "chardet", "concurrent.futures", "ctypes", "django", "multiprocessing"}
    # Python 3.10 loads it to name the platform.
    large |= {"subprocess"} if sys.version_info >= (3, 11) else set()
    assert [name for name in loaded if name in large or name.split(".")[0] == "redis"] == []
