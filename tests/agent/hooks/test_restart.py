"""Hooks run next to all other work of the agent, and survive its stops and crashes and the event's reboot."""

import signal
import threading
import time
from pathlib import Path

import pytest
from drydock_agent import wire
from drydock_agent.connections import Interrupted

from tests.agent.agents import VM_IDS, Agents, HookFolder, Machine, alive, begun, in_short
from tests.agent.fleet_double import eventually
from tests.agent.hooks.conftest import Stage
from tests.processes import Process

pytestmark = [pytest.mark.flow, pytest.mark.real_time]


def start(agents: Agents, hooks: HookFolder, **more: str) -> Process:
    """A real agent with hooks."""
    return agents.at_work(DRYDOCK_HOOKS_DIR=str(hooks.root), **more)


def said(agents: Agents) -> list[str]:
    return in_short(report["data"] for report in agents.fleet.reports(wire.HOOK))


def hanging(hooks: HookFolder, name: str = "10-hang") -> Path:
    """A hook that hangs, with a child, and does not care for SIGTERM; what it writes is the child's process id."""
    pid = hooks.root.parent / f"{name}-pid"
    hooks.add("prepare", name, f"trap '' TERM\nsleep 60 & echo $! > {pid}\nwait; wait; sleep 60")
    return pid


def test_a_hanging_hook_stops_neither_polls_reports_orders_nor_the_agent(agents: Agents, hooks: HookFolder) -> None:
    pid = hanging(hooks)
    process = start(agents, hooks, DRYDOCK_SIGNED_ORDERS="never")
    event_id = agents.announce("Reboot")
    eventually(lambda: begun(pid) and said(agents) == ["prepare begin running"])
    polls = len(agents.simulator.log(vm="web-vm1"))
    eventually(lambda: len(agents.simulator.log(vm="web-vm1")) > polls + 1)
    agents.fleet.order(VM_IDS["web-vm1"], event_id)
    [receipt] = eventually(agents.fleet.receipts)
    assert receipt["azure_status"] == 200
    eventually(lambda: agents.fleet.documents()[-1]["Events"][0]["EventStatus"] == "Started")
    assert said(agents) == ["prepare begin running"]
    before = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    assert process.child.wait(10) == 0
    # Under a second where nothing else runs; the hook would run for a minute.
    assert time.monotonic() - before < 4
    eventually(lambda: not alive(pid))
    assert "Traceback" not in process.said() and "WARNING" not in process.said()


def test_a_hook_cut_off_by_a_stop_is_run_again_and_those_before_it_are_not(agents: Agents, hooks: HookFolder) -> None:
    pid = agents.folder / "pid"
    hooks.add("prepare", "10-a")
    hooks.add("prepare", "20-once", f"test -e {pid} && exit 0; echo $$ > {pid}; sleep 60")
    process = start(agents, hooks)
    event_id = agents.announce("Reboot")
    eventually(lambda: begun(pid))
    assert process.stop() == 0
    start(agents, hooks)
    eventually(lambda: "prepare end succeeded" in said(agents))
    assert hooks.lines() == [f"prepare {name} {event_id}" for name in ("10-a", "20-once", "20-once")]
    ends = [f"prepare hook {end}" for end in ("10-a succeeded", "20-once failed", "20-once succeeded")]
    assert said(agents) == ["prepare begin running", *ends, "prepare end succeeded"]
    cut = agents.fleet.reports(wire.HOOK)[2]["data"]
    assert cut["output"] == "The agent stopped while 20-once ran; it is run again."


def test_a_crash_of_the_agent_loses_no_hook_and_leaves_no_second_one_running(agents: Agents, hooks: HookFolder) -> None:
    first, second = agents.folder / "first", agents.folder / "second"
    # In a session of its own the hook outlives the kill.
    script = f"test -e {first} && echo $$ > {second} || echo $$ > {first}; sleep 60"
    hooks.add("prepare", "10-long", script)
    process = start(agents, hooks)
    agents.announce("Reboot")
    eventually(lambda: begun(first))
    process.kill()
    assert alive(first)
    process = start(agents, hooks)
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
    hooks = ["prepare hook 10-hang failed", "prepare hook 20-b succeeded"]
    assert again.said() == ["prepare begin running", *hooks, "prepare end failed"]
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
