"""A machine with hooks, stepped by hand."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator

from tests.agent.agents import SteppedClock
from tests.agent.machine_hooks import HookFolder, Machine, MachineFactory


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


@dataclass
class Stage:
    """web-vm1 as often as it starts, its folder of hooks, and the simulator that announces events for it."""

    machines: MachineFactory
    simulator: RunningSimulator
    hooks: HookFolder

    def announce(self, *resources: str, **more: Any) -> str:
        """Return the id of a new event, which names the machine unless `resources` say otherwise."""
        fields = {"type": "Reboot", "notice_seconds": 600, **more}
        return self.simulator.events.create(set="web", resources=list(resources or ["web-vm1"]), **fields)

    def prepared(self) -> tuple[Machine, str]:
        """Return a machine with a hook for each phase, and the id of the event that it has prepared for."""
        self.hooks.add("prepare", "10-a")
        self.hooks.add("recover", "10-b")
        return self.announced()

    def announced(self, **more: Any) -> tuple[Machine, str]:
        """Return a machine that has read a new event about itself and run what follows, and the event's id."""
        machine = self.machines()
        event_id = self.announce(**more)
        machine.look()
        return machine, event_id


@pytest.fixture
def stage(machines: MachineFactory, simulator: RunningSimulator, hooks: HookFolder) -> Stage:
    return Stage(machines, simulator, hooks)
