"""Hooks run next to all other work of the agent, and survive its stops and crashes and the event's reboot."""

from __future__ import annotations

import os
import signal
import threading
import time
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

pytestmark = [
    pytest.mark.flow,
    pytest.mark.skipif(os.name != "posix", reason="the scripts here are written for sh"),
    pytest.mark.real_time,
]


def announce(simulator: RunningSimulator) -> str:
    return simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)


def at_work(agents: Agents, hooks: HookFolder, **more: str) -> Process:
    return agents.at_work(DRYDOCK_HOOKS_DIR=str(hooks.root), **more)


def said(fleet: FleetDouble) -> list[str]:
    return [
        " ".join(report["data"][field] for field in ("phase", "step", "hook", "outcome") if report["data"][field])
        for report in fleet.reports(wire.HOOK)
    ]


def hanging(hooks: HookFolder, name: str = "10-hang") -> Path:
    """A hook that hangs, with a child, and does not care for SIGTERM; what it writes is the child's process id."""
    pid = hooks.root.parent / f"{name}-pid"
    hooks.add("prepare", name, f"trap '' TERM\nsleep 60 & echo $! > {pid}\nwait; wait; sleep 60")
    return pid


def begun(pid: Path) -> bool:
    return pid.exists() and pid.read_text().strip() != ""


def test_a_hanging_hook_stops_neither_polls_nor_reports_nor_orders(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder
) -> None:
    pid = hanging(hooks)
    process = at_work(agents, hooks)
    event_id = announce(simulator)
    eventually(lambda: begun(pid) and said(fleet) == ["prepare begin running"])
    polls = len(simulator.log(vm="web-vm1"))
    eventually(lambda: len(simulator.log(vm="web-vm1")) > polls + 1)
    fleet.order(VM_IDS["web-vm1"], event_id)
    [receipt] = eventually(fleet.receipts)
    assert receipt["azure_status"] == 200
    eventually(lambda: fleet.documents()[-1]["Events"][0]["EventStatus"] == "Started")
    assert said(fleet) == ["prepare begin running"]
    process.stop()


def test_a_hook_is_ended_at_its_time_by_a_real_agent(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder
) -> None:
    hooks.add("prepare", "10-slow", "echo on my way; sleep 60")
    hooks.add("prepare", "20-b")
    at_work(agents, hooks, DRYDOCK_HOOK_TIMEOUT_SECONDS="1")
    announce(simulator)
    eventually(lambda: "prepare end timed-out" in said(fleet))
    slow = fleet.reports(wire.HOOK)[1]["data"]
    assert (slow["outcome"], slow["exit_status"], slow["output"]) == ("timed-out", None, "on my way\n")
    assert said(fleet)[2] == "prepare hook 20-b succeeded"


def test_the_agent_stops_in_under_a_second_and_takes_the_running_hook_along(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder
) -> None:
    pid = hanging(hooks)
    process = at_work(agents, hooks)
    announce(simulator)
    eventually(lambda: begun(pid))
    before = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    assert process.child.wait(10) == 0
    # Under a second where nothing else runs; the hook would run for a minute.
    assert time.monotonic() - before < 4
    eventually(lambda: not alive(pid))
    assert "Traceback" not in process.said() and "WARNING" not in process.said()


def test_a_hook_that_was_cut_off_by_a_stop_is_run_again_and_those_before_it_are_not(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder
) -> None:
    pid = agents.folder / "pid"
    hooks.add("prepare", "10-a")
    hooks.add("prepare", "20-once", f"test -e {pid} && exit 0; echo $$ > {pid}; sleep 60")
    process = at_work(agents, hooks)
    event_id = announce(simulator)
    eventually(lambda: begun(pid))
    assert process.stop() == 0
    at_work(agents, hooks)
    eventually(lambda: "prepare end succeeded" in said(fleet))
    assert hooks.lines() == [f"prepare {name} {event_id}" for name in ("10-a", "20-once", "20-once")]
    assert said(fleet) == [
        "prepare begin running",
        "prepare hook 10-a succeeded",
        "prepare hook 20-once failed",
        "prepare hook 20-once succeeded",
        "prepare end succeeded",
    ]
    assert fleet.reports(wire.HOOK)[2]["data"]["output"] == "The agent stopped while 20-once ran; it is run again."


def test_a_crash_of_the_agent_loses_no_hook_and_leaves_no_second_one_running(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder
) -> None:
    first, second = agents.folder / "first", agents.folder / "second"
    # In a session of its own the hook outlives the kill.
    script = f"test -e {first} && echo $$ > {second} || echo $$ > {first}; sleep 60"
    hooks.add("prepare", "10-long", script)
    process = at_work(agents, hooks)
    announce(simulator)
    eventually(lambda: begun(first))
    process.kill()
    assert alive(first)
    process = at_work(agents, hooks)
    eventually(lambda: begun(second))
    assert not alive(first) and alive(second)
    process.stop()
    assert not alive(second)


def test_the_machine_is_recovered_after_the_reboot_that_the_event_was(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble, hooks: HookFolder
) -> None:
    hooks.add("prepare", "10-a")
    hooks.add("recover", "10-b")
    process = at_work(agents, hooks)
    event_id = announce(simulator)
    eventually(lambda: "prepare end succeeded" in said(fleet))
    simulator.events.start(event_id)
    process.kill()
    process = at_work(agents, hooks)
    time.sleep(1.2)
    assert hooks.lines() == [f"prepare 10-a {event_id}"], "it is still Started: further impacts may come"
    process.kill()
    simulator.events.complete(event_id)
    at_work(agents, hooks)
    eventually(lambda: "recover end succeeded" in said(fleet))
    assert hooks.lines() == [f"prepare 10-a {event_id}", f"recover 10-b {event_id}"]


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
    begin_and_cut_off(stage.machines(boot=lambda: "first boot"), pid)
    again = stage.machines(boot=lambda: "second boot")
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
        begin_and_cut_off(stage.machines(boot=lambda: "one boot"), pid)
    third = stage.machines(boot=lambda: "one boot")
    third.look()
    assert third.said()[1:] == ["prepare hook 10-hang failed", "prepare hook 10-hang failed", "prepare end failed"]
    assert len(stage.hooks.lines()) == 2
