"""A machine with hooks, stepped by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator

from tests.agent.agents import SteppedClock
from tests.agent.machine_hooks import HookFolder, Machine, MachineFactory


@pytest.fixture
def hooks(tmp_path: Path) -> HookFolder:
    return HookFolder(tmp_path)


@pytest.fixture
def machines(
    tmp_path: Path, simulator: RunningSimulator, clock: SteppedClock, hooks: HookFolder
) -> Iterator[MachineFactory]:
    """Makes web-vm1; again, after a restart, on the same spool."""
    with ExitStack() as stack:

        def make(**more: Any) -> Machine:
            machine = Machine(tmp_path, hooks.root, simulator.vm_url("web-vm1"), clock, **more)
            stack.callback(machine.close)
            return machine

        yield make
