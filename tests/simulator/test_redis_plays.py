"""Whole maintenances of a cache, on a real server whose clients are really cut."""

import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from azure_simulator.child_process import ControlError, RunningSimulator
from azure_simulator.redis_plays import PLAYS, line
from drydock_agent.redis.errors import CacheConnectionLost
from drydock_agent.redis.login import Login
from drydock_agent.redis.subscription import Subscription

from tests.agent.redis.conftest import CacheServer, cache_at
from tests.agent.redis.conftest import server as server  # noqa: PLC0414 - a fixture
from tests.processes import wait_for
from tests.simulator.asking import west_norway

pytestmark = pytest.mark.real_time

CACHE = "west.redis.cache.windows.net"
BEGUN = datetime(2021, 10, 20, 16, 21, 39, tzinfo=UTC)


@pytest.fixture
def simulator(server: CacheServer) -> Iterator[RunningSimulator]:
    with RunningSimulator(west_norway(), redis_url=f"{CACHE}=redis://127.0.0.1:{server.port}/0") as simulator:
        yield simulator


def played(simulator: RunningSimulator) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        *_, shown = simulator.call("GET", "/control/redis")
        return None if shown["playing"] else shown

    return wait_for(over, seconds=20, what="the play is over")


def test_the_failover_is_the_documented_sequence_to_the_second() -> None:
    told = [
        ((BEGUN + timedelta(seconds=step.at)).strftime("%H:%M:%S"), line(step, BEGUN, 1.0) if step.kind else "cut")
        for step in PLAYS["failover"]
    ]
    primary = "IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000|NonSSLPort|13000"
    partner, replica = primary.replace("000", "001"), primary.replace("False", "True")
    assert told == [
        ("16:21:39", f"NotificationType|NodeMaintenanceScheduled|StartTimeInUTC|2021-10-20T16:35:57|{primary}"),
        ("16:34:26", f"NotificationType|NodeMaintenanceStarting|StartTimeInUTC|2021-10-20T16:34:46|{primary}"),
        ("16:34:46", f"NotificationType|NodeMaintenanceStart|{primary}"),
        ("16:34:47", "cut"),
        ("16:34:56", f"NotificationType|NodeMaintenanceFailoverComplete|{partner}"),
        ("16:37:48", f"NotificationType|NodeMaintenanceEnded|StartTimeInUTC|2021-10-20T16:37:48|{replica}"),
    ]


def test_subscribers_are_cut_between_start_and_failover_complete(
    simulator: RunningSimulator, server: CacheServer
) -> None:
    speed = 250.0
    kinds: list[str] = []
    listening = Subscription(cache_at(server.port), Login("", ""))
    assert simulator.play(CACHE, "failover", speed) == 969 / speed
    with closing(listening), pytest.raises(CacheConnectionLost):
        while True:
            if heard := listening.read(1.0):
                kinds.append(heard.data.decode().split("|")[1])
    assert kinds == ["NodeMaintenanceScheduled", "NodeMaintenanceStarting", "NodeMaintenanceStart"]
    shown = played(simulator)
    assert [each.get("cut") for each in shown["said"]] == [None, None, None, 1, None, None]
    assert (shown["play"], shown["error"]) == ("failover", "")


def test_the_caches_address_answers_new_connections_throughout_a_failover(
    simulator: RunningSimulator, server: CacheServer
) -> None:
    simulator.play(CACHE, "failover", 250.0)
    steps_said: set[int] = set()
    while (shown := simulator.call("GET", "/control/redis")[0])["playing"]:
        with socket.create_connection(("127.0.0.1", server.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(16) == b"+PONG\r\n"
        steps_said.add(len(shown["said"]))
    # Also between FailoverComplete and Ended.
    assert {3, 5} <= steps_said
    assert len(shown["said"]) == 6


def test_every_play_comes_to_its_end_and_says_its_lines_also_as_a_story(simulator: RunningSimulator) -> None:
    for play, steps in PLAYS.items():
        simulator.play(CACHE, play, 2000.0)
        said = played(simulator)["said"]
        assert [(each["raw"] or "|cut|").split("|")[1] for each in said] == [step.kind or "cut" for step in steps], play
        if play == "announced_never_started":
            assert said[0]["raw"] == said[1]["raw"], "a repeated announcement keeps its start"
    answer = simulator.call("POST", "/control/stories", {"story": "redis-failover", "speed": 1000})
    assert (answer["story"], answer["cache"], answer["play"]) == ("redis-failover", CACHE, "failover")
    assert len(played(simulator)["said"]) == 6


def test_server_does_not_answer_during_downtime(simulator: RunningSimulator, server: CacheServer) -> None:
    simulator.play(CACHE, "basic_tier", 100.0)
    lines = partial(simulator.call, "GET", "/control/redis")
    wait_for(lambda: len(lines()[0]["said"]) == 4, seconds=20, what="the server is unavailable")
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert played(simulator)["error"] == ""


def test_two_plays_on_one_cache_and_unknown_ones_are_refused(simulator: RunningSimulator) -> None:
    simulator.play(CACHE, "failover", 1.0)
    for body, status in [
        ({"cache": CACHE, "play": "replica"}, 409),
        ({"cache": CACHE, "play": "comedy"}, 400),
        ({"cache": CACHE}, 400),
        ({"cache": CACHE, "play": "failover", "raw": "a|b"}, 400),
    ]:
        with pytest.raises(ControlError) as refused:
            simulator.call("POST", "/control/redis", body)
        assert refused.value.status == status


def test_a_server_that_goes_away_ends_the_play_and_is_said(simulator: RunningSimulator, server: CacheServer) -> None:
    server.stop()
    simulator.play(CACHE, "failover", 100.0)
    assert "did not take it" in played(simulator)["error"]
