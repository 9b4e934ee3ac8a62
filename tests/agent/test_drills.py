"""Drills: the agent pretends an event, answers for Azure out of its own rehearsal, and never asks the real one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import drills, wire
from drydock_agent.backend.client import order_to_text, read_orders
from drydock_agent.clock import to_text
from drydock_agent.hooks.events import EventHooks
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import VM_IDS, Parts, PartsFactory, SteppedClock
from tests.agent.machine_hooks import HookFolder

MACHINE = VM_IDS["web-vm1"]
DRILL = "DRILL-7F3A"


def order(parts: Parts, step: str, *, order_id: str = "", event_id: str = DRILL, **drill: Any) -> wire.Order:
    """An order of a drill as it comes over the wire; `None` leaves a field out."""
    now = parts.server_clock.now()
    given = {"step": step, **drill}
    if step == "rehearse":
        event = {
            "EventId": event_id,
            "EventStatus": "Scheduled",
            "EventType": "Reboot",
            "ResourceType": "VirtualMachine",
            "Resources": ["web-vm1"],
            "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
        }
        given = {"event": event, "not_before": to_text(now + timedelta(seconds=60)), "duration_seconds": 5, **given}
    made = wire.Order(
        id=order_id or f"{step}-1",
        machine_id=MACHINE,
        event_id=event_id,
        issued_at=now,
        expires_at=now + timedelta(seconds=60),
        drill={name: value for name, value in given.items() if value is not None},
    )
    [read], unreadable = read_orders([json.loads(order_to_text(made))])
    assert not unreadable
    return read


def carry_out(parts: Parts, *orders: wire.Order) -> dict[str, Any]:
    """The last receipt after these orders were taken and carried out."""
    parts.orders.accept(list(orders))
    parts.carry_out()
    return parts.waiting(wire.RECEIPT)[-1]


def pass_time(parts: Parts, clock: SteppedClock, seconds: float) -> None:
    clock.advance(seconds)
    while parts.rehearsal.step() == 0.0:
        pass


def steps(parts: Parts) -> list[str]:
    return [f"{data['step']} {data['reason']}".strip() for data in parts.waiting(wire.REHEARSAL)]


@pytest.fixture
def made(parts: PartsFactory) -> Parts:
    made = parts()
    made.poller.step()
    return made


def announce(made: Parts, simulator: RunningSimulator, clock: SteppedClock, resource: str = "web-vm1") -> str:
    """Return the id of a real event that the machine has read."""
    event_id = simulator.events.create(set="web", type="Reboot", resources=[resource], notice_seconds=600)
    clock.advance(1)
    made.poller.step()
    return event_id


@pytest.fixture
def untouched(simulator: RunningSimulator) -> Iterator[None]:
    """Whatever the test does: nothing but polls reaches the metadata service, and no request names a drill."""
    before = max((line["index"] for line in simulator.log(limit=1)), default=0)
    yield
    lines = simulator.log(since=before)
    assert not [line for line in lines if line["method"] != "GET"]
    assert "drill" not in json.dumps(lines).lower()


pytestmark = pytest.mark.usefixtures("untouched")


def test_a_drill_is_announced_approved_started_and_over_without_azure(made: Parts, clock: SteppedClock) -> None:
    receipt = carry_out(made, order(made, "rehearse"))
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", None)
    assert made.rehearsal.listed()[DRILL.lower()]["Drill"] is True
    receipt = carry_out(made, order(made, "approve"))
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", 200)
    assert "Azure was not asked" in receipt["azure_body"]
    pass_time(made, clock, 1)
    assert steps(made) == ["announced"]
    pass_time(made, clock, 1.1)
    assert made.rehearsal.listed()[DRILL.lower()]["EventStatus"] == "Started"
    pass_time(made, clock, 5)
    assert steps(made) == ["announced", "started", "gone over"]
    assert made.rehearsal.listed() == {}


def test_unapproved_drill_starts_at_not_before(made: Parts, clock: SteppedClock) -> None:
    carry_out(made, order(made, "rehearse"))
    pass_time(made, clock, 59)
    assert steps(made) == ["announced"]
    pass_time(made, clock, 1)
    pass_time(made, clock, 5)
    assert steps(made) == ["announced", "started", "gone over"]


def test_other_machines_start_the_drill_on_request(made: Parts, clock: SteppedClock) -> None:
    carry_out(made, order(made, "rehearse"))
    at = made.server_clock.now() + timedelta(seconds=1)
    carry_out(made, order(made, "start", at=to_text(at)))
    pass_time(made, clock, 1)
    assert steps(made) == ["announced", "started"]


def test_drill_continues_after_a_restart_and_ends_if_the_agent_was_down(
    made: Parts, parts: PartsFactory, clock: SteppedClock
) -> None:
    carry_out(made, order(made, "rehearse"))
    carry_out(made, order(made, "approve"))
    made.close()
    again = parts()
    pass_time(again, clock, 3)
    assert steps(again) == ["announced", "started"]
    again.close()
    clock.advance(3600)
    late = parts()
    pass_time(late, clock, 0)
    assert steps(late) == ["announced", "started", "gone late"]


def test_repeated_order_is_answered_from_memory_and_restarts_nothing(made: Parts) -> None:
    same = order(made, "rehearse")
    carry_out(made, same)
    carry_out(made, order(made, "cancel"))
    made.spool.acknowledge(10, {})
    assert carry_out(made, same)["outcome"] == "answered"
    assert steps(made) == ["announced", "gone cancelled"]
    assert made.rehearsal.listed() == {}


def test_something_real_ends_a_drill_and_keeps_another_from_beginning(
    made: Parts, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    carry_out(made, order(made, "rehearse"))
    announce(made, simulator, clock, "web-vm2")
    pass_time(made, clock, 0)
    assert steps(made) == ["announced", "gone real-event"]
    receipt = carry_out(made, order(made, "rehearse", order_id="rehearse-2"))
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "real-event")


def test_one_drill_at_a_time(made: Parts) -> None:
    carry_out(made, order(made, "rehearse"))
    receipt = carry_out(made, order(made, "rehearse", order_id="rehearse-2", event_id="DRILL-OTHER"))
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "another-drill")


def test_an_agent_that_does_not_stay_takes_part_in_no_drill(made: Parts) -> None:
    made.rehearsal.running = False
    assert carry_out(made, order(made, "rehearse"))["reason"] == "not-running"


@pytest.mark.parametrize("step", ["rehearse", "approve", "start", "cancel"])
def test_a_drill_order_with_a_real_events_id_is_refused_and_azure_is_not_asked(
    made: Parts, simulator: RunningSimulator, clock: SteppedClock, step: str
) -> None:
    event_id = announce(made, simulator, clock)
    receipt = carry_out(made, order(made, step, event_id=event_id))
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "not-a-drill")


def test_an_order_for_a_drills_event_that_says_nothing_of_a_drill_is_refused(made: Parts) -> None:
    carry_out(made, order(made, "rehearse"))
    stripped = order(made, "approve", order_id="stripped")
    stripped.drill = None
    receipt = carry_out(made, stripped)
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "not-a-drill")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"step": "begin"}, "unreadable"),
        ({"step": None}, "unreadable"),
        ({"event": None}, "unreadable"),
        ({"event": {"EventId": "DRILL-ANOTHER"}}, "unreadable"),
        ({"not_before": "soon"}, "unreadable"),
        ({"not_before": "2099-01-01T00:00:00Z"}, "unreadable"),
        ({"duration_seconds": 601}, "unreadable"),
        ({"duration_seconds": -1}, "unreadable"),
        ({"duration_seconds": True}, "unreadable"),
        ({"duration_seconds": "long"}, "unreadable"),
    ],
)
def test_a_drill_that_cannot_be_read_or_goes_beyond_its_bounds_is_refused(
    made: Parts, wrong: dict[str, Any], reason: str
) -> None:
    wanted = order(made, "rehearse")
    wanted.drill = {name: value for name, value in {**(wanted.drill or {}), **wrong}.items() if value is not None}
    receipt = carry_out(made, wanted)
    assert (receipt["outcome"], receipt["reason"]) == ("refused", reason)
    assert made.rehearsal.listed() == {}


def test_order_with_any_drill_value_does_not_reach_azure(
    made: Parts, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    event_id = announce(made, simulator, clock)
    for number, odd in enumerate(("yes", 1, True, [], {}, False, "")):
        raw = {"id": f"odd-{number}", "machine_id": MACHINE, "event_id": event_id, "drill": odd}
        orders, _ = read_orders([raw])
        assert carry_out(made, *orders)["reason"] == "not-a-drill"


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5)))
def test_any_drill_in_an_order_makes_it_a_drill(content: dict[str, Any]) -> None:
    orders, _ = read_orders([{"id": "a", "event_id": "b", "machine_id": "c", "drill": content}])
    assert drills.is_drill(orders[0])


def test_the_rehearsal_has_no_way_to_the_metadata_service() -> None:
    source = Path(drills.__file__).read_text("utf-8")
    imported = {name for name in vars(drills) if "imds" in name.lower() or "connections" in name.lower()}
    assert not imported
    assert "metadata_service" not in source and "connections" not in source and "requests" not in source


def work(hooks: EventHooks) -> None:
    while hooks.step() == 0.0:
        pass


def with_hooks(parts: Parts, hooks: HookFolder) -> EventHooks:
    """Wire the machine's hooks to its rehearsal, as the agent does, and run its due hooks."""
    settings = replace(parts.context.settings, hooks_dir=hooks.root, hook_timeout_seconds=10)
    context = replace(parts.context, settings=settings)
    event_hooks = EventHooks(context, resource_name=lambda: "web-vm1", rehearsed=parts.rehearsal.listed)
    event_hooks.update_listed(parts.imds.scheduled_events())
    work(event_hooks)
    return event_hooks


def test_hooks_know_that_it_is_a_drill(made: Parts, hooks: HookFolder, clock: SteppedClock) -> None:
    hooks.add("prepare", "10-a", 'cat; echo "drill=$DRYDOCK_DRILL $DRYDOCK_EVENT_TYPE"')
    hooks.add("recover", "10-b", 'echo "drill=$DRYDOCK_DRILL $DRYDOCK_EVENT_STATUS"')
    event_hooks = with_hooks(made, hooks)
    carry_out(made, order(made, "rehearse"))
    work(event_hooks)
    carry_out(made, order(made, "approve"))
    pass_time(made, clock, 2)
    work(event_hooks)
    pass_time(made, clock, 5)
    work(event_hooks)
    outputs = [data["output"] for data in made.waiting(wire.HOOK) if data["step"] == "hook"]
    event, said = outputs[0].splitlines()
    assert json.loads(event)["Drill"] is True and said == "drill=1 Reboot"
    assert outputs[1:] == ["drill=1 Started\n"]
    assert hooks.lines() == [f"prepare 10-a {DRILL}", f"recover 10-b {DRILL}"]


def test_a_drills_hook_makes_way_for_a_real_event_and_is_recovered_after_it(
    made: Parts, hooks: HookFolder, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    hooks.add("prepare", "10-a", '[ "$DRYDOCK_DRILL" = 0 ] || sleep 30')
    hooks.add("recover", "10-b", 'echo "others=$DRYDOCK_OTHER_EVENTS"')
    # The simulator announces events by the real time.
    clock.wall = max(clock.wall, datetime.now(timezone.utc))
    event_hooks = with_hooks(made, hooks)
    carry_out(made, order(made, "rehearse"))
    thread = threading.Thread(target=work, args=(event_hooks,))
    began = time.monotonic()
    thread.start()
    while not hooks.lines():
        time.sleep(0.01)
    event_id = announce(made, simulator, clock)
    pass_time(made, clock, 0)
    event_hooks.update_listed(made.imds.scheduled_events())
    thread.join(20)
    assert time.monotonic() - began < 20
    work(event_hooks)
    assert hooks.lines() == [f"prepare 10-a {DRILL}", f"prepare 10-a {event_id}"], "the drill waits"
    cut = next(data for data in made.waiting(wire.HOOK) if data["step"] == "hook" and data["outcome"] == "failed")
    assert "a real event was announced" in cut["output"]
    simulator.events.cancel(event_id)
    event_hooks.update_listed(made.imds.scheduled_events())
    work(event_hooks)
    assert hooks.lines()[2:] == [f"recover 10-b {event_id}", f"recover 10-b {DRILL}"]
    assert [data["output"] for data in made.waiting(wire.HOOK) if data["hook"] == "10-b"] == ["others=\n", "others=\n"]


def test_the_hooks_of_a_drill_outlive_a_restart_of_the_agent(
    made: Parts, parts: PartsFactory, hooks: HookFolder, clock: SteppedClock
) -> None:
    hooks.add("prepare", "10-a")
    hooks.add("recover", "10-b")
    event_hooks = with_hooks(made, hooks)
    carry_out(made, order(made, "rehearse"))
    work(event_hooks)
    made.close()
    again = parts()
    event_hooks = with_hooks(again, hooks)
    assert hooks.lines() == [f"prepare 10-a {DRILL}"], "it is listed still"
    pass_time(again, clock, 60)
    pass_time(again, clock, 5)
    work(event_hooks)
    assert hooks.lines()[1:] == [f"recover 10-b {DRILL}"]
