"""The agent notifies the service manager when it is ready, makes progress and stops; its hooks do not."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drydock_agent import loop, service_manager, supervisor
from drydock_agent.clock import Clock
from drydock_agent.hooks.environment import environment
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.machine import Identity
from drydock_agent.settings.load import load
from drydock_agent.state_folder import StateFolder
from drydock_agent.supervisor import Supervisor

from tests.agent.agents import Agents
from tests.agent.fleet_double import eventually


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(10)
        yield heard


def drain(manager: socket.socket) -> None:
    manager.setblocking(False)
    try:
        while True:
            manager.recv(100)
    except BlockingIOError:
        manager.settimeout(10)


@pytest.mark.flow
def test_it_reports_ready_progress_and_stop_also_while_unidentified(agents: Agents, manager: socket.socket) -> None:
    agents.simulator.fault("web-vm1", "instance-500", count=100)
    process = agents.run(NOTIFY_SOCKET=str(manager.getsockname()))
    assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
    process.child.send_signal(signal.SIGTERM)
    while manager.recv(100) != b"STOPPING=1":
        pass
    assert process.child.wait(10) == 0


def test_probe_file_shows_progress_and_hooks_do_not_inherit_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in service_manager.VARIABLES:
        monkeypatch.setenv(name, "x")
    file = tmp_path / "alive"
    monkeypatch.setenv(service_manager.ALIVE_FILE, str(file))
    assert not set(service_manager.VARIABLES) & environment({}).keys()
    # No service manager has this address: nothing fails.
    service_manager.notify(service_manager.READY)
    assert not file.exists()
    service_manager.notify(service_manager.ALIVE)
    os.utime(file, (0, 0))
    service_manager.notify(service_manager.ALIVE)
    assert time.time() - file.stat().st_mtime < 60
    # What cannot be written disturbs nothing.
    monkeypatch.setenv(service_manager.ALIVE_FILE, str(file / "under-a-file"))
    service_manager.notify(service_manager.ALIVE)


class PlayedPart:
    """A part whose step waits until the test releases it."""

    name = "played"

    def __init__(self, end: Callable[[], None] = lambda: None) -> None:
        self.wake, self.released, self.end = threading.Event(), threading.Event(), end

    def step(self) -> float:
        self.released.wait(20)
        self.end()
        return 0.01

    def interrupt(self) -> None:
        self.released.set()


def end_thread() -> None:
    raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", ["stuck", "ended", "program"])
def test_progress_of_each_part_is_required(
    tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.getsockname()))
    monkeypatch.setattr(loop, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(supervisor, "STALLED_SECONDS", 0.3)
    clock = Clock()
    state = StateFolder(tmp_path / "state", clock)
    state.prepare()
    settings, limiter = load({"DRYDOCK_FLEET_URL": "https://drydock.example"}), LogLimiter(clock)
    found = Supervisor(settings, Identity("vm", "config"), state, clock=clock, limiter=limiter, wait=0)
    part = PlayedPart(end_thread if fault == "ended" else lambda: None)
    found.parts = (part,)
    if fault == "program":
        # A hook may run for as long as its own timeout.
        found._programs = (part,)  # type: ignore[assignment]
    found.start()
    watching = threading.Thread(
        target=loop._watch, args=(found, limiter), kwargs={"rediscover": False, "stop": found.stopping}
    )
    watching.start()
    try:
        assert manager.recv(100) == b"WATCHDOG=1"
        if fault == "ended":
            part.released.set()
        if fault != "program":
            eventually(lambda: found.stalled_parts() == ["played"])
            # A message may still wait for room in the queue.
            drain(manager)
            time.sleep(0.1)
            drain(manager)
            manager.settimeout(0.2)
            with pytest.raises(TimeoutError):
                manager.recv(100)
        else:
            assert not threading.Event().wait(0.5)
            drain(manager)
        manager.settimeout(10)
        if fault != "ended":
            part.released.set()
            assert manager.recv(100) == b"WATCHDOG=1"
    finally:
        found.finished.set()
        watching.join(10)
        found.stop()
