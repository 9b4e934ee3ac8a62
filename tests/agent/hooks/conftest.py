"""A machine with hooks, stepped by hand."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator

from tests.agent.agents import HookFolder, Machine, SteppedClock


@dataclass
class Stage:
    """web-vm1 as often as it starts, its folder of hooks, and the simulator that announces events for it."""

    folder: Path
    simulator: RunningSimulator
    clock: SteppedClock
    hooks: HookFolder
    ends: ExitStack

    def start(self, **more: Any) -> Machine:
        """Return the machine; again, after a restart, on the same spool."""
        machine = Machine(self.folder, self.hooks.root, self.simulator.vm_url("web-vm1"), self.clock, **more)
        self.ends.callback(machine.close)
        return machine

    def announce(self, *resources: str, **more: Any) -> str:
        """Return the id of a new event, which names the machine unless `resources` say otherwise."""
        fields = {"type": "Reboot", "notice_seconds": 600, **more}
        return self.simulator.events.create(set="web", resources=list(resources or ["web-vm1"]), **fields)

    def happens(self, change: str, event_id: str, machine: Machine) -> None:
        """Azure cancels, starts or completes the event, and the machine sees it."""
        getattr(self.simulator.events, change)(event_id)
        machine.look()

    def prepared(self) -> tuple[Machine, str]:
        """Return a machine with a hook for each phase, and the id of the event that it has prepared for."""
        self.hooks.add("prepare", "10-a")
        self.hooks.add("recover", "10-b")
        return self.announced()

    def announced(self, **more: Any) -> tuple[Machine, str]:
        """Return a machine that has read a new event about itself and run what follows, and the event's id."""
        machine = self.start()
        event_id = self.announce(**more)
        machine.look()
        return machine, event_id


@pytest.fixture
def stage(tmp_path: Path, simulator: RunningSimulator, clock: SteppedClock, hooks: HookFolder) -> Iterator[Stage]:
    with ExitStack() as ends:
        yield Stage(tmp_path, simulator, clock, hooks, ends)
