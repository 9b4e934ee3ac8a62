"""The Windows service: installed for SYSTEM and restarted after a failure; a stop lets hooks end."""

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.agents import Agents
from tests.agent.fleet_double import eventually
from tests.agent.windows.conftest import Agent
from tests.agent.windows.doubles import ADMINISTRATORS, FULL, USERS
from tests.processes import ROOT, free_port

RUNNING, STOP_PENDING = 4, 3


def test_installation_creates_a_service_that_restarts_after_failures(agent: Agent) -> None:
    python = Path(sys.base_prefix) / "python.exe"
    program = Path(agent.windows_service.__file__).with_name("windows_main.py")
    for _ in range(2):
        status, sentence = agent.windows_service.command("install")
        assert status == 0 and "Start-Service DrydockAgent" in sentence
    service = agent.machine.services["DrydockAgent"]
    assert service["line"] == f'"{python}" -I -S "{program}"'
    # Own process, starts with the machine; no account, which is SYSTEM.
    name, _, kind, start, *rest = service["about"]
    assert (name, kind, start, rest[-2:]) == ("Drydock agent", 16, 2, [None, None])
    assert service[2]["Actions"] == [(1, 5_000), (1, 30_000), (1, 60_000)]
    assert service[4] is True
    compile(program.read_text(), str(program), "exec")


@pytest.mark.parametrize("which", ["python", "packages"])
def test_a_service_of_files_that_users_can_change_is_not_installed(agent: Agent, which: str) -> None:
    packages = Path(agent.windows_service.__file__).parents[1]
    path = Path(sys.base_prefix) if which == "python" else packages
    agent.machine.allow(path, ADMINISTRATORS, ((0, 0), FULL, USERS))
    status, sentence = agent.windows_service.command("install")
    assert status == 1 and str(path) in sentence and r"BUILTIN\Users" in sentence
    assert agent.machine.services == {}


def test_removal_stops_the_service_or_gives_up_without_progress(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agent.windows_service.command("remove")[0] == 0
    agent.windows_service.command("install")
    with monkeypatch.context() as patch:
        patch.setattr(agent.windows_service, "STOP_SECONDS", 0.0)
        patch.setattr(agent.windows_service, "PENDING_SECONDS", 0.01)
        util = agent.machine.modules["win32serviceutil"]
        patch.setattr(util, "QueryServiceStatus", lambda name: (16, STOP_PENDING, 0, 0, 0, 7, 0))
        status, sentence = agent.windows_service.command("remove")
        assert status == 1 and "does not stop" in sentence and agent.machine.services
    agent.machine.running.add("DrydockAgent")
    assert agent.windows_service.command("remove") == (0, "The service DrydockAgent is removed.")
    assert agent.machine.services == {} and agent.machine.running == set()


def test_the_command_is_for_windows_only() -> None:
    command = [sys.executable, "-m", "drydock_agent", "service", "install"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "") and "for Windows only" in done.stderr


def test_the_watchdog_ends_an_agent_without_progress(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    stop = threading.Event()

    def end(status: int) -> None:
        statuses.append(status)
        stop.set()

    monkeypatch.setattr(agent.windows_service.os, "_exit", end)
    monkeypatch.setattr(agent.windows_service.logging, "shutdown", lambda: None)
    monkeypatch.setattr(agent.windows_service, "WATCHDOG_SECONDS", 0.2)
    agent.windows.heartbeat.at = time.monotonic()
    agent.windows_service._watchdog(stop)
    assert statuses == [1]
    agent.windows.notify("WATCHDOG=1")
    assert agent.windows.heartbeat.age() < 0.2


def test_the_log_rotates_while_others_read_it(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = agent.windows_service.ServiceLog(tmp_path / "agent.log", maxBytes=100, backupCount=2, encoding="utf-8")
    line = logging.LogRecord("drydock_agent", logging.INFO, "", 1, "x" * 60, (), None)
    for _ in range(3):
        handler.emit(line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.log", "agent.log.1", "agent.log.2"]

    def refuse(*paths: str) -> None:
        raise PermissionError(13, "The process cannot access the file because it is being used by another process")

    monkeypatch.setattr("os.rename", refuse)
    for _ in range(3):
        handler.emit(line)
    handler.close()
    assert (tmp_path / "agent.log").read_text().count("\n") == 4


class Service:
    """The agent as a service with doubles of Windows, in a process of its own."""

    def __init__(self, agents: Agents, **variables: str) -> None:
        self.data = agents.folder
        self.hooks = Path(f"{self.data}\\Drydock\\Hooks")
        environment = agents.environment(PROGRAMDATA=str(self.data), DRYDOCK_HOOK_TIMEOUT_SECONDS="30", **variables)
        (self.hooks / "prepare.d").mkdir(parents=True)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.windows.service_process"],
            cwd=ROOT, env={"PATH": "/usr/bin:/bin", **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def hook(self, name: str, script: str) -> None:
        (self.hooks / "prepare.d" / name).write_text(f"{script}\n")

    def control(self, word: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{word}\n")
        self.child.stdin.flush()

    def log(self) -> str:
        path = Path(f"{self.data}\\Drydock") / "Logs" / "agent.log"
        return path.read_text("utf-8") if path.exists() else ""

    def ended(self) -> str:
        output, _ = self.child.communicate(timeout=30)
        return output


Start = Callable[..., Service]


@pytest.fixture
def start(agents: Agents) -> Iterator[Start]:
    """Starts the agent as a service, and ends it with the test."""
    started: list[Service] = []

    def start(**variables: str) -> Service:
        started.append(Service(agents, **variables))
        return started[-1]

    yield start
    for service in started:
        service.child.kill()
        service.child.wait()


@pytest.mark.flow
@pytest.mark.real_time
@pytest.mark.parametrize("word", ["stop", "preshutdown"])
def test_a_stop_lets_the_running_hook_end_and_begins_no_other(agents: Agents, start: Start, word: str) -> None:
    service = start()
    begun, finished, second = (agents.folder / name for name in ("begun", "finished", "second"))
    service.hook("10-slow.cmd", f"touch {begun}; sleep 2; touch {finished}")
    service.hook("20-next.ps1", f"touch {second}")
    agents.announce("Reboot")
    eventually(begun.exists)
    service.control(word)
    time.sleep(0.3)
    service.control("interrogate")
    output = service.ended()
    assert service.child.returncode == 0, output
    assert finished.exists() and not second.exists()
    assert "prepare 10-slow.cmd succeeded" in service.log()
    lines = output.splitlines()
    states = [int(line.split()[1]) for line in lines if line.startswith("status")]
    assert states[0] == RUNNING and set(states[1:]) == {STOP_PENDING} and len(states) > 5
    # Ninety seconds: the time limit of hooks and a minute.
    assert "preshutdown 90000" in lines
    assert any(line.startswith("accepted 257 ") for line in lines)
    events = [line for line in lines if line.startswith("event")]
    assert len(events) == 2 and "has started" in events[0] and "has stopped" in events[1]


@pytest.mark.flow
@pytest.mark.real_time
def test_the_double_of_the_acceptance_script_lets_hooks_run(agents: Agents, start: Start) -> None:
    port, event = free_port(), {"EventId": "EVENT-1", "EventStatus": "Scheduled", "EventType": "Reboot"}
    event |= {"ResourceType": "VirtualMachine", "Resources": ["acceptance"], "NotBefore": ""}
    document = agents.folder / "events.json"
    document.write_text(json.dumps({"DocumentIncarnation": 1, "Events": []}), "utf-8-sig")
    double = [sys.executable, str(ROOT / "examples/windows/metadata_double.py"), str(agents.folder), str(port)]
    with subprocess.Popen(double) as metadata:
        try:
            # No backend answers there.
            service = start(
                DRYDOCK_IMDS_URL=f"http://127.0.0.1:{port}",
                DRYDOCK_FLEET_URL="https://127.0.0.1:9",
                DRYDOCK_PREPARE_MINUTES="now",
            )
            service.hook("10-a.cmd", "exit 0")
            eventually(lambda: "This is machine 5ae706df" in service.log())
            document.write_text(json.dumps({"DocumentIncarnation": 2, "Events": [event]}), "utf-8-sig")
            eventually(lambda: "prepare 10-a.cmd succeeded" in service.log())
            service.control("stop")
            assert "has stopped" in service.ended()
        finally:
            metadata.kill()


@pytest.mark.flow
@pytest.mark.real_time
def test_a_service_with_wrong_settings_ends_with_an_error_in_the_event_log(start: Start) -> None:
    service = start(DRYDOCK_POLL_SECONDS="often")
    output = service.ended()
    assert service.child.returncode == 1
    assert "event 1 The agent ended with an error: DRYDOCK_POLL_SECONDS must be a number of seconds" in output
