"""One hook as a process: its time, its group, its input and the end of what it prints."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from drydock_agent.connections import Interrupted
from drydock_agent.hooks.folder import Hook
from drydock_agent.hooks.process import HookResult, end_leftovers, run
from drydock_agent.hooks.progress import OUTPUT_CHARACTERS

from tests.agent.fleet_double import eventually
from tests.agent.machine_hooks import alive

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the scripts here are written for sh")


def hook(tmp_path: Path, script: str, *, head: str = "#!/bin/sh\n") -> str:
    path = tmp_path / "hook"
    path.write_text(f"{head}{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def ended(command: str, *, stdin: bytes = b"", timeout: float = 10.0, **variables: str) -> HookResult:
    environment = {"PATH": os.environ["PATH"], **variables}
    return run([command], environment=environment, stdin=stdin, timeout=timeout, stopping=threading.Event())


def test_the_end_of_the_output_is_kept_of_both_streams(tmp_path: Path) -> None:
    script = "yes drydock | head -c 3000000; echo; echo one; echo two >&2"
    found = ended(hook(tmp_path, script))
    assert (found.outcome, found.exit_status) == ("succeeded", 0)
    assert len(found.output) == OUTPUT_CHARACTERS
    assert found.output.endswith("\none\ntwo\n")


def test_output_that_is_no_text_becomes_text(tmp_path: Path) -> None:
    found = ended(hook(tmp_path, r"printf 'a\000b\377\303\251'"))
    assert found.output == "a\ufffdb\ufffdé"


def test_long_text_of_wide_characters_is_cut_by_characters(tmp_path: Path) -> None:
    found = ended(hook(tmp_path, "yes '🚢' | head -n 9000 | tr -d '\\n'"))
    assert found.output == "🚢" * OUTPUT_CHARACTERS


@pytest.mark.real_time
def test_a_hook_that_is_too_slow_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = hook(tmp_path, f"sh -c 'trap \"\" TERM; sleep 60' & echo $! > {pid}\necho waiting\nsleep 60")
    begun = time.monotonic()
    found = ended(command, timeout=0.3)
    assert (found.outcome, found.exit_status, found.output) == ("timed-out", None, "waiting\n")
    assert 0.3 <= found.seconds <= time.monotonic() - begun < 20
    eventually(lambda: not alive(pid))


@pytest.mark.real_time
def test_a_hook_is_asked_to_end_first(tmp_path: Path) -> None:
    found = ended(hook(tmp_path, "trap 'echo tidied up; exit 0' TERM\necho begun\nsleep 60 & wait"), timeout=0.3)
    assert (found.outcome, found.output) == ("timed-out", "begun\ntidied up\n")


@pytest.mark.real_time
def test_background_process_of_a_hook_does_not_delay_the_agent(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    begun = time.monotonic()
    found = ended(hook(tmp_path, f"sleep 60 & echo $! > {pid}\necho done"))
    assert (found.outcome, found.output) == ("succeeded", "done\n")
    assert time.monotonic() - begun < 20
    assert alive(pid), "a hook that succeeded may leave something running"
    os.kill(int(pid.read_text()), 9)


def test_a_hook_need_not_read_its_input(tmp_path: Path) -> None:
    assert ended(hook(tmp_path, "exit 0"), stdin=b"x" * 1_000_000).outcome == "succeeded"
    assert ended(hook(tmp_path, "wc -c"), stdin=b"x" * 1_000_000).output.strip() == "1000000"


@pytest.mark.parametrize(
    ("script", "head", "sentence"),
    [("echo hello", "", "Exec format error"), ("", "#!/no/such/program\n", "No such file or directory")],
)
def test_what_cannot_be_run_is_a_sentence(tmp_path: Path, script: str, head: str, sentence: str) -> None:
    found = ended(hook(tmp_path, script, head=head))
    assert found.outcome == "failed"
    assert found.output == f"It cannot be run: {sentence}."
    assert found.exit_status is None


def test_a_hook_that_a_signal_ends_has_failed(tmp_path: Path) -> None:
    found = ended(hook(tmp_path, "kill -9 $$"))
    assert (found.outcome, found.exit_status) == ("failed", -9)


@pytest.mark.real_time
def test_a_stop_ends_the_hook_soon_even_one_that_does_not_want_to(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    command = hook(tmp_path, f"trap '' TERM\necho $$ > {pid}\nwhile :; do sleep 1; done")
    begun = time.monotonic()
    with pytest.raises(Interrupted):
        run([command], environment={"PATH": os.environ["PATH"]}, stdin=b"", timeout=60, stopping=stopping)
    assert time.monotonic() - begun < 4
    eventually(lambda: not alive(pid))
    with pytest.raises(Interrupted):
        run([hook(tmp_path, f"rm {pid}")], environment={}, stdin=b"", timeout=60, stopping=stopping)
    assert pid.exists(), "nothing is begun after a stop"


@pytest.mark.real_time
def test_only_the_marked_processes_are_ended_as_left_over(tmp_path: Path) -> None:
    marked, other = tmp_path / "marked", tmp_path / "other"
    ended(hook(tmp_path, f"setsid sleep 60 >/dev/null 2>&1 & echo $! > {marked}"), DRYDOCK_RUN="one-of-this-test")
    ended(hook(tmp_path, f"setsid sleep 60 >/dev/null 2>&1 & echo $! > {other}"), DRYDOCK_RUN="one-of-this-test-too")
    assert end_leftovers("DRYDOCK_RUN=one-of-this-test") == 1
    eventually(lambda: not alive(marked))
    assert alive(other)
    assert end_leftovers("DRYDOCK_RUN=one-of-this-test-too") == 1


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("10-a.ps1", ["powershell.exe", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"]),
        ("10-a.cmd", ["cmd.exe", "/d", "/c"]),
        ("10-a.BAT", ["cmd.exe", "/d", "/c"]),
        ("10-a.exe", []),
    ],
)
def test_windows_runs_scripts_by_their_ending(name: str, command: list[str]) -> None:
    path = Path("hooks") / name
    assert Hook(name, path).command(windows=True) == [*command, str(path)]
    assert Hook(name, path).command(windows=False) == [str(path)]
