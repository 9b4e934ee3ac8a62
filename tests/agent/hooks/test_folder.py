"""Hooks folder: the agent runs the permitted files and refuses the others."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent.hooks.folder import FolderRefused, list_hooks

from tests.agent.agents import SteppedClock
from tests.agent.machine_hooks import HookFolder, Machine

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
STRANGER = 12345


@pytest.fixture
def hooks(tmp_path: Path) -> HookFolder:
    return HookFolder(tmp_path)


def test_files_are_run_in_the_order_of_their_names(hooks: HookFolder) -> None:
    for name in ("20-b.py", "10-z", "100-a", "10-a.sh", "A"):
        hooks.add("prepare", name)
    assert [hook.name for hook in list_hooks(hooks.root, "prepare")] == ["10-a.sh", "10-z", "100-a", "20-b.py", "A"]
    assert list_hooks(hooks.root, "recover") == []


def test_what_is_no_program_is_passed_over(hooks: HookFolder) -> None:
    hooks.add("prepare", "README", mode=0o644)
    for name in (".hidden", "10-a~", "10-a.bak", "10-a.dpkg-old", "10-a.rpmsave"):
        hooks.add("prepare", name)
    folder = hooks.root / "prepare.d"
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    assert list_hooks(hooks.root, "prepare") == []


def test_a_link_to_a_program_is_run(hooks: HookFolder, tmp_path: Path) -> None:
    target = hooks.add("prepare", "10-a").rename(tmp_path / "target")
    (hooks.root / "prepare.d" / "10-link").symlink_to(target)
    assert [hook.name for hook in list_hooks(hooks.root, "prepare")] == ["10-link"]


def test_a_name_that_is_no_text_is_reported_as_text(hooks: HookFolder) -> None:
    path = hooks.add("prepare", "10-a")
    path.rename(os.fsdecode(os.fsencode(path) + b"\xff"))
    assert [hook.name for hook in list_hooks(hooks.root, "prepare")] == ["10-a?"]


def test_a_file_that_everybody_can_write_is_refused_with_a_sentence_and_the_others_run(
    hooks: HookFolder, tmp_path: Path, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    hooks.add("prepare", "10-a", mode=0o757)
    hooks.add("prepare", "20-b")
    event_id = simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    with closing(Machine(tmp_path, hooks.root, simulator.vm_url("web-vm1"), clock)) as machine:
        machine.look()
        said, refused = machine.said(), machine.reports()[1]
    assert hooks.lines() == [f"prepare 20-b {event_id}"]
    assert said[1:] == ["prepare hook 10-a failed", "prepare hook 20-b succeeded", "prepare end failed"]
    assert refused["output"] == "10-a is not run: it can be written by everybody."
    assert refused["exit_status"] is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(hooks: HookFolder) -> None:
    os.chown(hooks.add("prepare", "10-a"), STRANGER, -1)
    [hook] = list_hooks(hooks.root, "prepare")
    assert hook.refused == f"10-a is not run: it belongs to user {STRANGER}, not to root or to the agent's user."


@pytest.mark.parametrize("which", ["", "prepare.d"])
def test_nothing_of_a_folder_that_everybody_can_write_is_run(
    hooks: HookFolder, tmp_path: Path, simulator: RunningSimulator, clock: SteppedClock, which: str
) -> None:
    hooks.add("prepare", "10-a")
    (hooks.root / which).chmod(0o777)
    simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    with closing(Machine(tmp_path, hooks.root, simulator.vm_url("web-vm1"), clock)) as machine:
        machine.look()
        said, ended = machine.said(), machine.reports()[0]
    assert (hooks.lines(), said) == ([], ["prepare end failed"])
    folder = hooks.root / "prepare.d"
    assert ended["output"] == f"Nothing in {folder} is run: {hooks.root / which} can be written by everybody."


def test_a_folder_that_is_no_folder_is_a_sentence(hooks: HookFolder) -> None:
    (hooks.root / "prepare.d").touch()
    with pytest.raises(FolderRefused, match=r"prepare\.d cannot be read: Not a directory\.$"):
        list_hooks(hooks.root, "prepare")
