"""The examples as an agent runs them: announced by the simulator, seen by the poller, run by the agent's own code."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator

from tests.agent.agents import SteppedClock
from tests.agent.conftest import one_simulator as one_simulator  # noqa: PLC0414 - a fixture
from tests.agent.conftest import simulator as simulator  # noqa: PLC0414 - a fixture
from tests.agent.machine_hooks import Machine
from tests.processes import ROOT

EXAMPLES = ROOT / "examples" / "hooks"


class Example:
    """One folder of examples on one machine; `Example.set` gives its hooks a variable."""

    def __init__(self, name: str, machine: Machine, simulator: RunningSimulator, patch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.machine = machine
        self.simulator = simulator
        self._patch = patch

    def set(self, **variables: object) -> None:
        for name, value in variables.items():
            self._patch.setenv(name, str(value))

    def replace_program(self, folder: Path, name: str, program: str) -> None:
        """Puts a program of this name in front of the machine's own."""
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(program, encoding="utf-8")
        (folder / name).chmod(0o755)
        self.set(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")

    def rehearse(self, hook: str) -> str:
        """What one hook says in a drill; fails where it failed."""
        drill = {"DRYDOCK_DRILL": "1", "DRYDOCK_EVENT_TYPE": "Reboot", "DRYDOCK_HOOK_TIMEOUT_SECONDS": "5"}
        command = [EXAMPLES / self.name / hook]
        return subprocess.check_output(
            command, env={**os.environ, **drill}, stdin=subprocess.DEVNULL, text=True, timeout=30
        )

    def prepare(self, kind: str = "Reboot", *, ends: str = "succeeded", **more: Any) -> tuple[str, str]:
        """The id of a new event, and what the hooks for it said; fails where they ended otherwise."""
        fields = {"resources": ["web-vm1"], "notice_seconds": 600, **more}
        event_id = self.simulator.events.create(set="web", type=kind, **fields)
        outcome, output = self._look(event_id, "prepare")
        assert outcome == ends, output
        return event_id, output

    def recover(self, event_id: str) -> str:
        """The event goes; what the hooks said."""
        if self.simulator.events.get(event_id)["status"] == "Scheduled":
            self.simulator.events.start(event_id)
        self.simulator.events.complete(event_id)
        outcome, output = self._look(event_id, "recover")
        assert outcome == "succeeded", output
        return output

    def cancel(self, event_id: str) -> str:
        """The event is cancelled; what the hooks said."""
        self.simulator.events.cancel(event_id)
        return self._look(event_id, "recover")[1]

    def _look(self, event_id: str, phase: str) -> tuple[str, str]:
        self.machine.look()
        found = [data for data in self.machine.reports() if (data["event_id"], data["phase"]) == (event_id, phase)]
        return found[-1]["outcome"], "".join(data["output"] for data in found)


ExampleFactory = Callable[..., Example]


@pytest.fixture
def example(tmp_path: Path, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExampleFactory]:
    with ExitStack() as stack:

        def make(name: str, *, timeout: float = 10.0) -> Example:
            url = simulator.vm_url("web-vm1")
            machine = Machine(tmp_path, EXAMPLES / name, url, SteppedClock(), timeout=timeout)
            stack.callback(machine.close)
            return Example(name, machine, simulator, monkeypatch)

        yield make
