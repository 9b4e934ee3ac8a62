"""Polling interval: the agent leaves room for the machine's other clients, and no answer breaks its timing."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent.clock import Clock
from drydock_agent.machine import Identity, Instance
from drydock_agent.metadata_service.client import Imds, MetadataUnavailable
from drydock_agent.metadata_service.rate_limit import MAX_PER_SECOND, RateLimit
from drydock_agent.metadata_service.scheduled_events import SWITCHED_OFF_SECONDS

from tests.agent.agents import FLEET, VM_IDS, Agents, Parts, SteppedClock
from tests.agent.fleet_double import FleetDouble, eventually


@contextmanager
def dribbling() -> Iterator[str]:
    """A service whose answer comes byte by byte and never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.02):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(10)


def test_no_second_sees_more_than_three_requests_of_this_process() -> None:
    rate_limit, begun = RateLimit(Clock()), []
    threads = [threading.Thread(target=lambda: (rate_limit.wait(), begun.append(time.monotonic()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    begun.sort()
    assert len(begun) == 8
    # A thread notes its time late where others keep the processor busy; without the limit it would be no time at all.
    assert all(later - first >= 0.7 for first, later in zip(begun, begun[MAX_PER_SECOND:], strict=False))
    assert begun[-1] - begun[0] < 6, "and no longer than needed"


def test_a_request_that_is_alone_does_not_wait(clock: SteppedClock) -> None:
    rate_limit, begun = RateLimit(clock), time.monotonic()
    for _ in range(100):
        rate_limit.wait()
        clock.advance(1 / MAX_PER_SECOND + 0.001)
    # One wait of a third of a second each time would be half a minute.
    assert time.monotonic() - begun < 5


@pytest.mark.real_time
@pytest.mark.flow
def test_burst_of_approvals_with_polls_stays_below_the_limit(tmp_path: Path, fleet: FleetDouble) -> None:
    with RunningSimulator(FLEET, most_a_second=5) as simulator, ExitStack() as stack:
        agents = Agents(tmp_path, simulator, fleet)
        stack.callback(agents.end)
        events = [agents.announce() for _ in range(7)]
        agents.at_work()
        agents.reported(*events)
        for number, event_id in enumerate(events):
            fleet.order(VM_IDS["web-vm1"], event_id, order_id=f"order-{number}")
        eventually(lambda: len(simulator.log(vm="web-vm1", method="POST")) == 7)
        entries = simulator.log(vm="web-vm1")
        assert {entry["status"] for entry in entries if entry["method"] == "POST"} == {200}
        assert 429 not in {entry["status"] for entry in entries}
        times = [datetime.fromisoformat(entry["time"]).timestamp() for entry in entries]
        # As they arrive, which is not quite as they were sent.
        assert all(later - first > 0.6 for first, later in zip(times, times[MAX_PER_SECOND:], strict=False))


def test_an_answer_that_never_ends_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drydock_agent.metadata_service.client.WHOLE_SECONDS", 0.3)
    monkeypatch.setattr("drydock_agent.metadata_service.client.READ_SECONDS", 0.2)
    with dribbling() as url:
        imds = Imds(url)
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.1):
                imds.cut_if_overdue()

        watcher = threading.Thread(target=watch)
        watcher.start()
        begun = time.monotonic()
        with pytest.raises(MetadataUnavailable, match="does not answer"):
            imds.scheduled_events()
        assert 0.4 < time.monotonic() - begun < 5
        stop.set()
        watcher.join(10)
        imds.close()


def test_machine_that_slept_for_a_day_gives_the_service_time_to_restart(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drydock_agent.metadata_service.client.READ_SECONDS", 0.2)
    parts.polls(1)
    parts.fault("slow", count=2, delay_seconds=1)
    parts.poller.step()
    assert parts.poller.last_poll_at != parts.clock.now(), "in the middle of the day a second is too long here"
    parts.clock.advance(SWITCHED_OFF_SECONDS + 1)
    parts.poller.step()
    assert parts.poller.last_poll_at == parts.clock.now()


def test_the_instance_metadata_is_read_at_the_start_and_hourly(parts: Parts) -> None:
    identity = Identity("00000000-0000-4000-8000-000000000001", "imds")
    instance = Instance(parts.context, identity, imds=parts.imds, reported=lambda: None, changed=lambda: None)
    with parts.requests() as paths:
        for _ in range(4):
            assert instance.step() > 0
            parts.clock.advance(1800)
    assert len([path for path in paths if "/metadata/instance" in path]) == 2, (
        "at 0:00 and at 1:00, not at 0:30 and 1:30"
    )
