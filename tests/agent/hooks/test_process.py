"""Hooks: which files of the folder are run, and one hook as a process."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from drydock_agent.connections import Interrupted
from drydock_agent.hooks.folder import FolderRefused, list_hooks
from drydock_agent.hooks.process import HookResult, end_leftovers, run
from drydock_agent.hooks.progress import OUTPUT_CHARACTERS

from tests.agent.agents import HookFolder, alive, executable
from tests.agent.fleet_double import eventually
from tests.agent.hooks.conftest import Stage


def ended(folder: Path, script: str, *, head: str = "#!/bin/sh\n", **more: Any) -> HookResult:
    """Run a hook to its end; `more` are variables and options of `run`."""
    options = {"stdin": b"", "timeout": 10.0, "stopping": threading.Event()}
    options |= {name: more.pop(name) for name in options if name in more}
    program = executable(folder / "hook", script, head=head)
    return run([str(program)], environment={"PATH": os.environ["PATH"], **more}, **options)


@pytest.mark.parametrize(
    ("script", "outcome", "output"),
    [
        (r"printf 'a\000b\377\303\251'", ("succeeded", 0), "a\ufffdb\ufffdé"),
        ("yes '🚢' | head -n 9000 | tr -d '\\n'", ("succeeded", 0), "🚢" * OUTPUT_CHARACTERS),
        ("wc -c | tr -d ' '", ("succeeded", 0), "1000000\n"),
        # A hook need not read its input.
        ("echo no; exit 3", ("failed", 3), "no\n"),
        ("kill -9 $$", ("failed", -9), ""),
    ],
)
def test_output_and_status_of_a_hook(tmp_path: Path, script: str, outcome: tuple[str, int], output: str) -> None:
    result = ended(tmp_path, script, stdin=b"x" * 1_000_000)
    assert ((result.outcome, result.exit_status), result.output) == (outcome, output)


def test_the_end_of_the_output_is_kept_of_both_streams(tmp_path: Path) -> None:
    result = ended(tmp_path, "yes drydock | head -c 3000000; echo; echo one; echo two >&2")
    assert len(result.output) == OUTPUT_CHARACTERS and result.output.endswith("\none\ntwo\n")


@pytest.mark.real_time
def test_a_hook_that_is_too_slow_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    begun = time.monotonic()
    script = f"sh -c 'trap \"\" TERM; sleep 60' & echo $! > {pid}\necho waiting\nsleep 60"
    found = ended(tmp_path, script, timeout=0.3)
    assert (found.outcome, found.exit_status, found.output) == ("timed-out", None, "waiting\n")
    assert 0.3 <= found.seconds <= time.monotonic() - begun < 20
    eventually(lambda: not alive(pid))


@pytest.mark.real_time
def test_a_hook_is_asked_to_end_first(tmp_path: Path) -> None:
    found = ended(tmp_path, "trap 'echo tidied up; exit 0' TERM\necho begun\nsleep 60 & wait", timeout=0.3)
    assert (found.outcome, found.output) == ("timed-out", "begun\ntidied up\n")


@pytest.mark.real_time
def test_background_process_of_a_hook_does_not_delay_the_agent(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    begun = time.monotonic()
    found = ended(tmp_path, f"sleep 60 & echo $! > {pid}\necho done")
    assert (found.outcome, found.output) == ("succeeded", "done\n")
    assert time.monotonic() - begun < 20
    assert alive(pid), "a hook that succeeded may leave something running"
    os.kill(int(pid.read_text()), 9)


@pytest.mark.parametrize(
    ("script", "head", "sentence"),
    [("echo hello", "", "Exec format error"), ("", "#!/no/such/program\n", "No such file or directory")],
)
def test_what_cannot_be_run_is_a_sentence(tmp_path: Path, script: str, head: str, sentence: str) -> None:
    found = ended(tmp_path, script, head=head)
    assert (found.outcome, found.exit_status) == ("failed", None)
    assert found.output == f"It cannot be run: {sentence}."


@pytest.mark.real_time
def test_a_stop_ends_the_hook_soon_even_one_that_does_not_want_to(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    script, begun = f"trap '' TERM\necho $$ > {pid}\nwhile :; do sleep 1; done", time.monotonic()
    with pytest.raises(Interrupted):
        ended(tmp_path, script, timeout=60, stopping=stopping)
    assert time.monotonic() - begun < 4
    eventually(lambda: not alive(pid))
    with pytest.raises(Interrupted):
        ended(tmp_path, f"rm {pid}", timeout=60, stopping=stopping)
    assert pid.exists(), "nothing is begun after a stop"


@pytest.mark.real_time
def test_only_the_marked_processes_are_ended_as_left_over(tmp_path: Path) -> None:
    marked, other = tmp_path / "marked", tmp_path / "other"
    for pid, name in ((marked, "one-of-this-test"), (other, "one-of-this-test-too")):
        ended(tmp_path, f"setsid sleep 60 >/dev/null 2>&1 & echo $! > {pid}", DRYDOCK_RUN=name)
    assert end_leftovers("one-of-this-test", tmp_path / "record") == 1
    eventually(lambda: not alive(marked))
    assert alive(other)
    assert end_leftovers("one-of-this-test-too", tmp_path / "record") == 1


STRANGER = 12345


def test_files_and_links_to_programs_are_run_in_the_order_of_their_names(hooks: HookFolder, tmp_path: Path) -> None:
    for name in ("20-b.py", "10-z", "100-a", "10-a.sh", "A"):
        hooks.add("prepare", name)
    folder = hooks.root / "prepare.d"
    (folder / "30-link").symlink_to(hooks.add("prepare", "30-a").rename(tmp_path / "target"))
    # A name that is no text is reported as text.
    hooks.add("prepare", "40-a").rename(os.fsdecode(os.fsencode(folder / "40-a") + b"\xff"))
    names = [hook.name for hook in list_hooks(hooks.root, "prepare")]
    assert names == ["10-a.sh", "10-z", "100-a", "20-b.py", "30-link", "40-a?", "A"]
    assert list_hooks(hooks.root, "recover") == []


def test_what_is_no_program_is_passed_over(hooks: HookFolder) -> None:
    hooks.add("prepare", "README", mode=0o644)
    for name in (".hidden", "10-a~", "10-a.bak", "10-a.dpkg-old", "10-a.rpmsave"):
        hooks.add("prepare", name)
    folder = hooks.root / "prepare.d"
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    assert list_hooks(hooks.root, "prepare") == []


def test_a_file_that_everybody_can_write_is_refused_with_a_sentence_and_the_others_run(stage: Stage) -> None:
    stage.hooks.add("prepare", "10-a", mode=0o757)
    stage.hooks.add("prepare", "20-b")
    machine, event_id = stage.announced()
    assert stage.hooks.lines() == [f"prepare 20-b {event_id}"]
    assert machine.said()[1:] == ["prepare hook 10-a failed", "prepare hook 20-b succeeded", "prepare end failed"]
    refused = machine.reports()[1]
    assert refused["output"] == "10-a is not run: it can be written by everybody."
    assert refused["exit_status"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(hooks: HookFolder) -> None:
    os.chown(hooks.add("prepare", "10-a"), STRANGER, -1)
    [hook] = list_hooks(hooks.root, "prepare")
    assert hook.refused == f"10-a is not run: it belongs to user {STRANGER}, not to root or to the agent's user."


@pytest.mark.parametrize("which", ["", "prepare.d"])
def test_nothing_of_a_folder_that_everybody_can_write_is_run(stage: Stage, which: str) -> None:
    stage.hooks.add("prepare", "10-a")
    root = stage.hooks.root
    (root / which).chmod(0o777)
    machine, _ = stage.announced()
    assert (stage.hooks.lines(), machine.said()) == ([], ["prepare end failed"])
    sentence = f"Nothing in {root / 'prepare.d'} is run: {root / which} can be written by everybody."
    assert machine.reports()[0]["output"] == sentence


def test_a_folder_that_is_no_folder_is_a_sentence(hooks: HookFolder) -> None:
    (hooks.root / "prepare.d").touch()
    with pytest.raises(FolderRefused, match=r"prepare\.d cannot be read: Not a directory\.$"):
        list_hooks(hooks.root, "prepare")
