"""The examples for `redis.d` and the documented maintenance, with a real cache and the lines of a real play."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.spool.store import Spool

from tests.agent.redis.conftest import CacheServer, Hooked, Listening, cache_at
from tests.processes import ROOT, wait_for
from tests.simulator.asking import west_norway

pytestmark = pytest.mark.real_time

EXAMPLES = ROOT / "examples" / "hooks" / "redis"

CACHE = "west.redis.cache.windows.net"

Example = Callable[..., Hooked]


@pytest.fixture
def example(spool: Spool, server: CacheServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    with ExitStack() as stack:

        def start(name: str, **variables: Path | str) -> Hooked:
            for variable, value in variables.items():
                monkeypatch.setenv(variable, str(value))
            made = Hooked(spool, cache_at(server.port), EXAMPLES / name)
            stack.callback(made.stop)
            made.listening.until("subscribed")
            return made

        yield start


@pytest.fixture
def simulator(server: CacheServer) -> Iterator[RunningSimulator]:
    with RunningSimulator(west_norway(), redis_url=f"redis://127.0.0.1:{server.port}/0") as simulator:
        yield simulator


def text_of(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def changes(file: Path, until: str, *, seconds: float = 20.0) -> list[str]:
    """What a file came to hold, one after the other, up to `until`."""
    seen: list[str] = []

    def over() -> bool:
        now = text_of(file)
        if not seen or seen[-1] != now:
            seen.append(now)
        return now == until

    wait_for(over, seconds=seconds, what=f"{file.name} holds {until!r} (it held {seen})")
    return seen


def say(server: CacheServer, kind: str, replica: bool = False, port: int = 15000) -> None:
    ports = f"SSLPort|{port}|NonSSLPort|{port - 2000}"
    server.say(f"NotificationType|NodeMaintenance{kind}|IsReplica|{replica}|IPAddress||{ports}")


def after(made: Hooked, count: int, file: Path, *line: Any, **more: int) -> str:
    """What a file holds when a line was said and so many hooks have succeeded."""
    say(*line, **more)
    wait_for(lambda: made.hooks.outcomes["succeeded"] == count, seconds=5, what="the hook ended")
    return text_of(file)


def test_the_breaker_opens_for_a_primary_about_to_go(example: Example, server: CacheServer, tmp_path: Path) -> None:
    route = tmp_path / "store"
    made = example("circuit-breaker", STORE_FILE=route)
    changes(route, "cache")
    lines = (("Scheduled", False, "cache"), ("Starting", False, "backup"), ("Start", False, "backup"))
    for number, (kind, replica, store) in enumerate((*lines, ("Start", True, "cache")), start=1):
        assert after(made, 2 * number, route, server, kind, replica) == store
        assert after(made, 2 * number + 1, route, server, "FailoverComplete", port=15001) == "cache"


def test_replica_reads_go_to_the_primary_and_back(example: Example, server: CacheServer, tmp_path: Path) -> None:
    source = tmp_path / "read-from"
    made = example("replica-reads", READ_FROM_FILE=source, SHARDS_DIR=tmp_path / "shards")
    lines = (
        ("Start", True, 15001),
        ("Start", False, 15002),
        ("Ended", True, 15001),
        ("FailoverComplete", False, 15003),
    )
    for count, line in enumerate(lines, start=2):
        assert after(made, count, source, server, *line) == "primary"
    assert after(made, 6, source, server, "Ended", True, 15002) == "replica"


def test_writes_are_paused_until_it_is_safe(example: Example, simulator: RunningSimulator, tmp_path: Path) -> None:
    pause = tmp_path / "pause"
    made = example("pause-writes", PAUSE_FILE=pause)

    def may_write() -> bool:
        """The application: whether it writes now."""
        return not pause.exists() or float(text_of(pause) or 0) < time.time()

    assert may_write()
    simulator.play(CACHE, "failover", 100.0)
    wait_for(lambda: not may_write(), seconds=20, what="writes are paused")
    wait_for(may_write, seconds=20, what="writes are safe")
    assert made.hooks.outcomes["failed"] == 0


def test_a_pause_whose_end_was_missed_ends_by_itself(example: Example, server: CacheServer, tmp_path: Path) -> None:
    pause = tmp_path / "pause"
    example("pause-writes", PAUSE_FILE=pause, PAUSE_MOST_SECONDS="60")
    server.say("NotificationType|NodeMaintenanceStart")
    wait_for(pause.exists, seconds=5, what="a pause, though no message states that it is a primary")
    assert 50 < float(text_of(pause)) - time.time() <= 61


APPLICATION = """
import pathlib, signal, sys
asked = pathlib.Path(sys.argv[1])
count = 0
def refresh(*_):
    global count
    count += 1
    asked.write_text(str(count))
signal.signal(signal.SIGHUP, refresh)
asked.write_text("0")
while True:
    signal.pause()
"""


def test_the_client_refreshes_its_topology(example: Example, server: CacheServer, tmp_path: Path) -> None:
    asked, pid = tmp_path / "asked", tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", APPLICATION, str(asked)]) as application:
        try:
            wait_for(lambda: text_of(asked) == "0", seconds=10, what="the application")
            pid.write_text(str(application.pid))
            example("refresh-topology", PID_FILE=pid)
            wait_for(lambda: text_of(asked) == "1", seconds=10, what="a look at the connection's return")
            say(server, "Scheduled")
            say(server, "FailoverComplete", port=15001)
            wait_for(lambda: text_of(asked) == "2", seconds=10, what="a look after the failover")
            server.kill_subscribers()
            wait_for(lambda: text_of(asked) == "3", seconds=10, what="a look after a gap")
        finally:
            application.send_signal(signal.SIGKILL)


def kinds(lines: list[str]) -> list[str]:
    return [line.split("|")[1].removeprefix("NodeMaintenance") for line in lines]


@pytest.mark.long
def test_a_failover_is_heard_with_its_gap(simulator: RunningSimulator, listener: Listening) -> None:
    # Fifty times as fast: the server is unavailable for 140 ms.
    simulator.play(CACHE, "failover", 50.0)
    wait_for(lambda: kinds(listener.lines())[-1:] == ["Ended"], seconds=30, what="the end of the maintenance")
    assert listener.states() == ["subscribed", "lost", "subscribed"]
    start = next(data["at"] for data in listener.reports(wire.REDIS) if "MaintenanceStart|" in data["raw"])
    assert listener.reports(wire.COVERAGE)[1]["at"] > start, "first the notice, then the cut"
    heard = kinds(listener.lines())
    # A line that the server publishes while no client is subscribed is lost: a missing member is not a fault.
    assert [kind for kind in heard if kind != "FailoverComplete"] == ["Scheduled", "Starting", "Start", "Ended"]
    assert heard.count("FailoverComplete") <= 1


def test_a_replica_is_maintained_without_a_gap(simulator: RunningSimulator, listener: Listening) -> None:
    simulator.play(CACHE, "replica", 200.0)
    assert kinds(listener.heard(4)) == ["Scheduled", "Starting", "Start", "Ended"]
    assert all("|IsReplica|True|" in line for line in listener.lines())
    assert listener.states() == ["subscribed"]
