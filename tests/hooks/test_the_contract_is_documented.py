"""docs/admin/hooks.md says what the agent does."""

import re
from contextlib import closing
from pathlib import Path

from azure_simulator.child_process import RunningSimulator
from drydock_agent.hooks.process import GRACE_SECONDS, STOP_GRACE_SECONDS
from drydock_agent.hooks.progress import OUTPUT_CHARACTERS
from drydock_agent.platforms import posix
from drydock_agent.settings.load import SPEC

from tests.agent.agents import SteppedClock
from tests.agent.machine_hooks import HookFolder, Machine
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "admin" / "hooks.md").read_text(encoding="utf-8")


def test_every_variable_of_a_hook_is_described_and_no_other(tmp_path: Path, one_simulator: RunningSimulator) -> None:
    hooks = HookFolder(tmp_path)
    hooks.add("prepare", "10-a", "env | grep -o '^DRYDOCK_[A-Z_]*'")
    event_id = one_simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    with closing(Machine(tmp_path, hooks.root, one_simulator.vm_url("web-vm1"), SteppedClock())) as machine:
        machine.look()
        given = machine.reports()[1]["output"].split()
    one_simulator.events.cancel(event_id)
    assert sorted(re.findall(r"^\| `(DRYDOCK_\w+)` \|", PAGE, re.MULTILINE)) == sorted(given)


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"last {OUTPUT_CHARACTERS:,} characters" in PAGE
    assert f"{GRACE_SECONDS:g} seconds later" in PAGE
    assert f"{STOP_GRACE_SECONDS:g} seconds later" in PAGE
    assert "hooks_dir" in SPEC and posix.hooks_dir({}) in PAGE
    assert r"%ProgramData%\Drydock\Hooks" in PAGE
