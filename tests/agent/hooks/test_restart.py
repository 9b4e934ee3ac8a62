"""Hooks run next to all other work of the agent, and survive its stops and crashes and the event's reboot."""

import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.connections import Interrupted

from tests.agent.agents import VM_IDS, Agents
from tests.agent.fleet_double import FleetDouble, eventually
from tests.agent.hooks.conftest import Stage
from tests.agent.machine_hooks import HookFolder, Machine, alive
from tests.processes import Process

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


@dataclass
class AtWork:
    """A real agent with hooks, its backend and its machine's Azure."""

    agents: Agents
    simulator: RunningSimulator
    fleet: FleetDouble
    hooks: HookFolder

    def start(self, **more: str) -> Process:
        return self.agents.at_work(DRYDOCK_HOOKS_DIR=str(self.hooks.root), **more)

    def announce(self) -> str:
        return self.simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)

    def said(self) -> list[str]:
        return [
            " ".join(report["data"][field] for field in ("phase", "step", "hook", "outcome") if report["data"][field])
            for report in self.fleet.reports(wire.HOOK)
        ]


@pytest.fixture
def it(agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder) -> AtWork:
    return AtWork(agents, simulator, fleet, hooks)


def hanging(hooks: HookFolder, name: str = "10-hang") -> Path:
    """A hook that hangs, with a child, and does not care for SIGTERM; what it writes is the child's process id."""
    pid = hooks.root.parent / f"{name}-pid"
    hooks.add("prepare", name, f"trap '' TERM\nsleep 60 & echo $! > {pid}\nwait; wait; sleep 60")
    return pid


def begun(pid: Path) -> bool:
    return pid.exists() and pid.read_text().strip() != ""


def test_a_hanging_hook_stops_neither_polls_nor_reports_nor_orders_nor_the_agent(it: AtWork) -> None:
    pid = hanging(it.hooks)
    process = it.start(DRYDOCK_SIGNED_ORDERS="never")
    event_id = it.announce()
    eventually(lambda: begun(pid) and it.said() == ["prepare begin running"])
    polls = len(it.simulator.log(vm="web-vm1"))
    eventually(lambda: len(it.simulator.log(vm="web-vm1")) > polls + 1)
    it.fleet.order(VM_IDS["web-vm1"], event_id)
    [receipt] = eventually(it.fleet.receipts)
    assert receipt["azure_status"] == 200
    eventually(lambda: it.fleet.documents()[-1]["Events"][0]["EventStatus"] == "Started")
    assert it.said() == ["prepare begin running"]
    before = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    assert process.child.wait(10) == 0
    # Under a second where nothing else runs; the hook would run for a minute.
    assert time.monotonic() - before < 4
    eventually(lambda: not alive(pid))
    assert "Traceback" not in process.said() and "WARNING" not in process.said()


def test_a_hook_that_was_cut_off_by_a_stop_is_run_again_and_those_before_it_are_not(it: AtWork) -> None:
    pid = it.agents.folder / "pid"
    it.hooks.add("prepare", "10-a")
    it.hooks.add("prepare", "20-once", f"test -e {pid} && exit 0; echo $$ > {pid}; sleep 60")
    process = it.start()
    event_id = it.announce()
    eventually(lambda: begun(pid))
    assert process.stop() == 0
    it.start()
    eventually(lambda: "prepare end succeeded" in it.said())
    assert it.hooks.lines() == [f"prepare {name} {event_id}" for name in ("10-a", "20-once", "20-once")]
    assert it.said() == [
        "prepare begin running",
        "prepare hook 10-a succeeded",
        "prepare hook 20-once failed",
        "prepare hook 20-once succeeded",
        "prepare end succeeded",
    ]
    assert it.fleet.reports(wire.HOOK)[2]["data"]["output"] == "The agent stopped while 20-once ran; it is run again."


def test_a_crash_of_the_agent_loses_no_hook_and_leaves_no_second_one_running(it: AtWork) -> None:
    first, second = it.agents.folder / "first", it.agents.folder / "second"
    # In a session of its own the hook outlives the kill.
    script = f"test -e {first} && echo $$ > {second} || echo $$ > {first}; sleep 60"
    it.hooks.add("prepare", "10-long", script)
    process = it.start()
    it.announce()
    eventually(lambda: begun(first))
    process.kill()
    assert alive(first)
    process = it.start()
    eventually(lambda: begun(second))
    assert not alive(first) and alive(second)
    process.stop()
    assert not alive(second)


def begin_and_cut_off(machine: Machine, pid: Path) -> None:
    """Run the due hooks until the hanging one runs, then stop as an agent does on a stop signal."""
    machine.poll()

    def stop() -> None:
        eventually(lambda: begun(pid))
        machine.hooks.interrupt()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Interrupted):
        machine.work()
    stopper.join()
    machine.close()


def test_a_hook_that_takes_the_machine_down_is_not_run_at_each_boot(stage: Stage) -> None:
    pid = hanging(stage.hooks)
    stage.hooks.add("prepare", "20-b")
    stage.announce()
    begin_and_cut_off(stage.start(boot=lambda: "first boot"), pid)
    again = stage.start(boot=lambda: "second boot")
    again.look()
    assert again.said() == [
        "prepare begin running",
        "prepare hook 10-hang failed",
        "prepare hook 20-b succeeded",
        "prepare end failed",
    ]
    assert again.reports()[1]["output"] == "The agent stopped while 10-hang ran; it is not run again."


def test_a_hook_that_is_cut_off_again_and_again_is_given_up(stage: Stage) -> None:
    stage.announce()
    pid = hanging(stage.hooks)
    for _ in range(2):
        pid.unlink(missing_ok=True)
        begin_and_cut_off(stage.start(boot=lambda: "one boot"), pid)
    third = stage.start(boot=lambda: "one boot")
    third.look()
    assert third.said()[1:] == ["prepare hook 10-hang failed", "prepare hook 10-hang failed", "prepare end failed"]
    assert len(stage.hooks.lines()) == 2
