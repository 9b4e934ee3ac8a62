"""Hooks on Windows: in a job with all that they start, and found again after a crash."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from drydock_agent.connections import Interrupted
from drydock_agent.hooks import process
from drydock_agent.hooks.process import HookResult

from tests.agent.agents import alive, begun, executable
from tests.agent.fleet_double import eventually
from tests.agent.windows.conftest import Agent

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def on_windows(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "processes", agent.windows_processes)


def ended(agent: Agent, path: Path, *, timeout: float = 10.0, **more: Any) -> HookResult:
    options = {"stdin": b"", "stopping": threading.Event(), **more}
    environment = {"PATH": os.environ["PATH"], "DRYDOCK_RUN": "run"}
    return process.run(agent.windows.hook_command(path), environment=environment, timeout=timeout, **options)


@pytest.mark.parametrize("name", ["10-a.ps1", "20 b & c.cmd", "30-c.exe"])
def test_each_kind_of_hook_gets_its_input_and_gives_output_and_status(agent: Agent, tmp_path: Path, name: str) -> None:
    found = ended(agent, executable(tmp_path / name, "cat; echo $DRYDOCK_RUN; exit 3"), stdin=b"event ")
    assert (found.outcome, found.exit_status, found.output) == ("failed", 3, "event run\n")
    [job] = agent.machine.jobs
    assert job.ends_with_the_agent and len(job.processes) == 1
    assert ended(agent, executable(tmp_path / name, "exit 0")).outcome == "succeeded"
    if name.endswith(".cmd"):
        assert agent.machine.command_lines[0].endswith(f'cmd.exe /d /s /c ""{tmp_path / name}""')


def test_a_hook_runs_without_a_record_and_errors_are_a_status_or_a_sentence(agent: Agent, tmp_path: Path) -> None:
    path = executable(tmp_path / "10-a.cmd", "exit 0")
    assert ended(agent, path, record=tmp_path / "nowhere" / "record.json").outcome == "succeeded"
    killed = ended(agent, executable(tmp_path / "20-b.exe", "kill -9 $$"))
    assert (killed.outcome, killed.exit_status) == ("failed", -9)
    missing = ended(agent, tmp_path / "30-c.exe")
    assert missing.output == "It cannot be run: The system cannot find the file specified.."
    assert (missing.outcome, missing.exit_status) == ("failed", None)


def test_a_slow_hook_is_ended_with_all_that_it_started(agent: Agent, tmp_path: Path) -> None:
    pid, record = tmp_path / "pid", tmp_path / "record.json"
    path = executable(tmp_path / "10-a.cmd", f"sleep 60 & echo $! > {pid}\necho waiting\nsleep 60")
    found = ended(agent, path, timeout=0.5, record=record)
    assert (found.outcome, found.exit_status, found.output) == ("timed-out", None, "waiting\n")
    eventually(lambda: not alive(pid))
    assert not record.exists()


def test_a_stop_ends_the_hook(agent: Agent, tmp_path: Path) -> None:
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    with pytest.raises(Interrupted):
        ended(agent, executable(tmp_path / "10-a.cmd", "sleep 60"), timeout=60, stopping=stopping)


def test_what_a_hook_started_may_run_until_the_agent_ends(agent: Agent, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    path = executable(tmp_path / "10-a.cmd", f"sleep 60 >/dev/null 2>&1 & echo $! > {pid}")
    assert ended(agent, path).outcome == "succeeded"
    assert alive(pid)
    jobs = agent.windows_processes._jobs_in_use
    assert jobs == agent.machine.jobs, "closing the last handle of the job would end it"
    agent.machine.processes[0].kill()
    eventually(lambda: not alive(pid))
    assert ended(agent, executable(tmp_path / "20-b.cmd", "exit 0")).outcome == "succeeded"
    assert jobs == []


def crashed(agent: Agent, tmp_path: Path) -> tuple[Path, Path]:
    """Start a hook as an agent that then crashed; return the record, and the file with the hook's process id."""
    pid, record = tmp_path / "pid", tmp_path / "record.json"
    path = executable(tmp_path / "10-a.cmd", f"echo $$ > {pid}\nexec sleep 60")
    child = agent.windows_processes.Child(
        agent.windows.hook_command(path), environment={"PATH": os.environ["PATH"]}, record=record
    )
    child.stdin.close()
    child.stdout.close()
    eventually(lambda: begun(pid))
    return record, pid


def test_a_hook_that_a_crash_left_is_ended(agent: Agent, tmp_path: Path) -> None:
    record, pid = crashed(agent, tmp_path)
    assert process.end_leftovers("run", record) == 1
    eventually(lambda: not alive(pid))
    assert not record.exists()
    assert process.end_leftovers("run", record) == 0


@pytest.mark.parametrize("text", ["later", "ended", "damaged"])
def test_another_process_with_the_id_of_a_hook_is_not_ended(agent: Agent, tmp_path: Path, text: str) -> None:
    record, pid = crashed(agent, tmp_path)
    number, _ = json.loads(record.read_text())
    record.write_text({"later": f'[{number}, "earlier"]', "ended": '[4999999, "1"]', "damaged": "{"}[text])
    assert process.end_leftovers("run", record) == 0
    assert alive(pid)


def test_output_in_the_code_page_of_the_console_is_text(agent: Agent) -> None:
    assert agent.windows_processes.decode("é".encode()) == "é"
    assert agent.windows_processes.decode("🚢é".encode()[2:]) == "é"
    # Linux has no such code page.
    assert agent.windows_processes.decode(b"a\xff") == "a\ufffd"


def test_two_hooks_do_not_inherit_each_others_pipes(agent: Agent, tmp_path: Path) -> None:
    """The lock is held while a hook is created, so that no other one is created meanwhile."""
    with agent.windows_processes._creating:
        waiting = threading.Thread(target=ended, args=(agent, executable(tmp_path / "10-a.cmd", "exit 0")))
        waiting.start()
        time.sleep(0.2)
        assert agent.machine.processes == []
    waiting.join(10)
    assert len(agent.machine.processes) == 1
