"""The documented sequence on a real server, as agents hear it: cut off in the middle, and back in time for the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire

from tests.agent.redis.conftest import ListeningFactory
from tests.agent.redis.servers import CacheServer
from tests.processes import wait_for
from tests.simulator.asking import west_norway

pytestmark = pytest.mark.real_time

CACHE = "west.redis.cache.windows.net"


@pytest.fixture
def simulator(server: CacheServer) -> Iterator[RunningSimulator]:
    with RunningSimulator(west_norway(), redis_url=f"redis://127.0.0.1:{server.port}/0") as simulator:
        yield simulator


def kinds(lines: list[str]) -> list[str]:
    return [line.split("|")[1].removeprefix("NodeMaintenance") for line in lines]


@pytest.mark.long
def test_a_failover_is_heard_with_its_gap_between_start_and_failover_complete(
    simulator: RunningSimulator, server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port)
    one.until("subscribed")
    # Fifty times as fast: the server is away for 140 ms.
    simulator.play(CACHE, "failover", 50.0)
    wait_for(lambda: kinds(one.lines())[-1:] == ["Ended"] or None, seconds=30, what="the end of the maintenance")
    assert one.states() == ["subscribed", "lost", "subscribed"]
    start = next(data["at"] for data in one.reports(wire.REDIS) if "MaintenanceStart|" in data["raw"])
    assert one.reports(wire.COVERAGE)[1]["at"] > start, "first the notice, then the cut"
    heard = kinds(one.lines())
    # A line that the server publishes while no client is subscribed is lost: a missing member is not a fault.
    assert [kind for kind in heard if kind != "FailoverComplete"] == ["Scheduled", "Starting", "Start", "Ended"]
    assert heard.count("FailoverComplete") <= 1


def test_a_replica_is_maintained_without_a_gap(
    simulator: RunningSimulator, server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port)
    one.until("subscribed")
    simulator.play(CACHE, "replica", 200.0)
    assert kinds(one.heard(4)) == ["Scheduled", "Starting", "Start", "Ended"]
    assert all("|IsReplica|True|" in line for line in one.lines())
    assert one.states() == ["subscribed"]
