"""Drills: the agent pretends an event, answers for Azure out of its own rehearsal, and never asks the real one."""

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

from tests.agent.agents import VM_IDS, HookFolder, Parts
from tests.processes import wait_for

DRILL = "DRILL-7F3A"
MINUTE = timedelta(seconds=60)


class Participant:
    """A machine that has read its first document, and the drills that the backend orders it to take part in."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.event_hooks: EventHooks | None = None
        parts.poller.step()

    def order(self, step: str, *, order_id: str = "", event_id: str = DRILL, **drill: Any) -> wire.Order:
        """An order of a drill as it comes over the wire; `None` leaves a field out."""
        now = self.parts.server_clock.now()
        fields = {"step": step, **drill}
        if step == "rehearse":
            event: dict[str, Any] = {"EventId": event_id, "EventStatus": "Scheduled", "EventType": "Reboot"}
            event |= {"ResourceType": "VirtualMachine", "Resources": ["web-vm1"]}
            event["NotBefore"] = "Mon, 19 Sep 2016 18:29:47 GMT"
            fields = {"event": event, "not_before": to_text(now + MINUTE), "duration_seconds": 5, **fields}
        stated = {name: value for name, value in fields.items() if value is not None}
        sent = wire.Order(
            id=order_id or f"{step}-1", machine_id=VM_IDS["web-vm1"], event_id=event_id,
            issued_at=now, expires_at=now + MINUTE, drill=stated,
        )  # fmt: skip
        [order], unreadable = read_orders([json.loads(order_to_text(sent))])
        assert not unreadable
        return order

    def carry_out(self, order: wire.Order) -> dict[str, Any]:
        """The last receipt after the order was taken and carried out."""
        self.parts.orders.accept([order])
        self.parts.carry_out()
        return self.parts.waiting(wire.RECEIPT)[-1]

    def send(self, step: str, **fields: Any) -> tuple[str, str]:
        """The outcome of an order and the reason for it."""
        receipt = self.carry_out(self.order(step, **fields))
        return receipt["outcome"], receipt["reason"]

    def pass_time(self, seconds: float) -> None:
        self.parts.clock.advance(seconds)
        while self.parts.rehearsal.step() == 0.0:
            pass
        self.run_hooks()

    def steps(self) -> list[str]:
        return [f"{data['step']} {data['reason']}".strip() for data in self.parts.waiting(wire.REHEARSAL)]

    def announce(self, resource: str = "web-vm1") -> str:
        """Return the id of a real event that the machine has read."""
        event_id = self.parts.announce("Reboot", resource=resource)
        self.parts.clock.advance(1)
        self.parts.poller.step()
        return event_id

    def with_hooks(self, hooks: HookFolder) -> None:
        """Wire the machine's hooks to its rehearsal, as the agent does, and run its due hooks."""
        settings = replace(self.parts.context.settings, hooks_dir=hooks.root, hook_timeout_seconds=10)
        context = replace(self.parts.context, settings=settings)
        rehearsed = self.parts.rehearsal.listed
        self.event_hooks = EventHooks(context, resource_name=lambda: "web-vm1", rehearsed=rehearsed)
        self.read_document()

    def read_document(self) -> None:
        assert self.event_hooks is not None
        self.event_hooks.update_listed(self.parts.imds.scheduled_events())
        self.run_hooks()

    def run_hooks(self) -> None:
        while self.event_hooks is not None and self.event_hooks.step() == 0.0:
            pass


@pytest.fixture
def participant(parts: Parts) -> Participant:
    return Participant(parts)


@pytest.fixture(autouse=True)
def untouched(simulator: RunningSimulator) -> Iterator[None]:
    """Whatever the test does: nothing but polls reaches the metadata service, and no request names a drill."""
    before = max((line["index"] for line in simulator.log(limit=1)), default=0)
    yield
    lines = simulator.log(since=before)
    assert not [line for line in lines if line["method"] != "GET"]
    assert "drill" not in json.dumps(lines).lower()


def test_a_drill_is_announced_approved_started_and_over_without_azure(participant: Participant) -> None:
    receipt = participant.carry_out(participant.order("rehearse"))
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", None)
    assert participant.parts.rehearsal.listed()[DRILL.lower()]["Drill"] is True
    receipt = participant.carry_out(participant.order("approve"))
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", 200)
    assert "Azure was not asked" in receipt["azure_body"]
    participant.pass_time(1)
    assert participant.steps() == ["announced"]
    participant.pass_time(1.1)
    assert participant.parts.rehearsal.listed()[DRILL.lower()]["EventStatus"] == "Started"
    participant.pass_time(5)
    assert participant.steps() == ["announced", "started", "gone over"]
    assert participant.parts.rehearsal.listed() == {}


@pytest.mark.parametrize("on_request", [True, False])
def test_a_drill_starts_on_request_or_unapproved_at_not_before(participant: Participant, on_request: bool) -> None:
    participant.send("rehearse")
    if on_request:
        participant.send("start", at=to_text(participant.parts.server_clock.now() + timedelta(seconds=1)))
    participant.pass_time(0.5 if on_request else 59)
    assert participant.steps() == ["announced"]
    participant.pass_time(1)
    participant.pass_time(5)
    assert participant.steps() == ["announced", "started", "gone over"]


def test_drill_continues_after_a_restart_and_ends_if_the_agent_was_down(participant: Participant) -> None:
    participant.send("rehearse")
    participant.send("approve")
    participant.parts.restart()
    participant.pass_time(3)
    assert participant.steps() == ["announced", "started"]
    participant.parts.restart(seconds=3600)
    participant.pass_time(0)
    assert participant.steps() == ["announced", "started", "gone late"]


def test_repeated_order_is_answered_from_memory_and_restarts_nothing(participant: Participant) -> None:
    same = participant.order("rehearse")
    participant.carry_out(same)
    participant.send("cancel")
    participant.parts.spool.acknowledge(10, {})
    assert participant.carry_out(same)["outcome"] == "answered"
    assert participant.steps() == ["announced", "gone cancelled"]
    assert participant.parts.rehearsal.listed() == {}


def test_something_real_ends_a_drill_and_keeps_another_from_beginning(participant: Participant) -> None:
    participant.parts.rehearsal.running = False
    assert participant.send("rehearse", order_id="rehearse-0") == ("refused", "not-running"), "an agent that ends soon"
    participant.parts.rehearsal.running = True
    participant.send("rehearse")
    receipt = participant.carry_out(replace(participant.order("approve"), drill=None))
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "not-a-drill")
    assert participant.send("rehearse", order_id="rehearse-2", event_id="DRILL-OTHER") == ("refused", "another-drill")
    participant.announce("web-vm2")
    participant.pass_time(0)
    assert participant.steps() == ["announced", "gone real-event"]
    assert participant.send("rehearse", order_id="rehearse-3") == ("refused", "real-event")


@pytest.mark.parametrize("step", ["rehearse", "approve", "start", "cancel"])
def test_a_drill_with_the_id_of_a_real_event_is_refused_without_azure(participant: Participant, step: str) -> None:
    assert participant.send(step, event_id=participant.announce()) == ("refused", "not-a-drill")


WRONG: dict[str, list[object]] = {
    "step": ["begin", None],
    "event": [None, {"EventId": "DRILL-ANOTHER"}],
    "not_before": ["soon", "2099-01-01T00:00:00Z"],
    "duration_seconds": [601, -1, True, "long"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_drill_unreadable_or_out_of_bounds_is_refused(participant: Participant, name: str, value: object) -> None:
    order = participant.order("rehearse")
    fields = {**(order.drill or {}), name: value}
    order.drill = {name: value for name, value in fields.items() if value is not None}
    receipt = participant.carry_out(order)
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "unreadable")
    assert participant.parts.rehearsal.listed() == {}


def test_order_with_any_drill_value_does_not_reach_azure(participant: Participant) -> None:
    event_id = participant.announce()
    for number, odd in enumerate(("yes", 1, True, [], {}, False, "")):
        raw = {"id": f"odd-{number}", "machine_id": VM_IDS["web-vm1"], "event_id": event_id, "drill": odd}
        [order], _ = read_orders([raw])
        assert participant.carry_out(order)["reason"] == "not-a-drill"


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5)))
def test_any_drill_in_an_order_makes_it_a_drill(content: dict[str, Any]) -> None:
    [order], _ = read_orders([{"id": "a", "event_id": "b", "machine_id": "c", "drill": content}])
    assert drills.is_drill(order)


def test_the_rehearsal_has_no_way_to_the_metadata_service() -> None:
    source = Path(drills.__file__).read_text("utf-8")
    assert not {name for name in vars(drills) if "imds" in name.lower() or "connections" in name.lower()}
    assert "metadata_service" not in source and "connections" not in source and "requests" not in source


def test_hooks_know_that_it_is_a_drill(participant: Participant, hooks: HookFolder) -> None:
    hooks.add("prepare", "10-a", 'cat; echo "drill=$DRYDOCK_DRILL $DRYDOCK_EVENT_TYPE"')
    hooks.add("recover", "10-b", 'echo "drill=$DRYDOCK_DRILL $DRYDOCK_EVENT_STATUS"')
    participant.with_hooks(hooks)
    participant.send("rehearse")
    participant.run_hooks()
    participant.send("approve")
    participant.pass_time(2)
    participant.pass_time(5)
    prepared, recovered = [data["output"] for data in participant.parts.waiting(wire.HOOK) if data["step"] == "hook"]
    event, line = prepared.splitlines()
    assert json.loads(event)["Drill"] is True and line == "drill=1 Reboot"
    assert recovered == "drill=1 Started\n"
    assert hooks.lines() == [f"prepare 10-a {DRILL}", f"recover 10-b {DRILL}"]


def test_a_drills_hook_makes_way_for_a_real_event(participant: Participant, hooks: HookFolder) -> None:
    hooks.add("prepare", "10-a", '[ "$DRYDOCK_DRILL" = 0 ] || sleep 30')
    hooks.add("recover", "10-b", 'echo "others=$DRYDOCK_OTHER_EVENTS"')
    # The simulator announces events by the real time.
    participant.parts.clock.wall = max(participant.parts.clock.wall, datetime.now(timezone.utc))
    participant.with_hooks(hooks)
    participant.send("rehearse")
    thread = threading.Thread(target=participant.run_hooks)
    began = time.monotonic()
    thread.start()
    wait_for(hooks.lines, seconds=20, what="the drill's hook runs")
    event_id = participant.announce()
    while participant.parts.rehearsal.step() == 0.0:
        pass
    assert participant.event_hooks is not None
    participant.event_hooks.update_listed(participant.parts.imds.scheduled_events())
    thread.join(20)
    assert time.monotonic() - began < 20
    participant.run_hooks()
    assert hooks.lines() == [f"prepare 10-a {DRILL}", f"prepare 10-a {event_id}"], "the drill waits"
    outcomes = [data for data in participant.parts.waiting(wire.HOOK) if data["step"] == "hook"]
    cut = next(data for data in outcomes if data["outcome"] == "failed")
    assert "a real event was announced" in cut["output"]
    participant.parts.simulator.events.cancel(event_id)
    participant.read_document()
    assert hooks.lines()[2:] == [f"recover 10-b {event_id}", f"recover 10-b {DRILL}"]
    outputs = [data["output"] for data in participant.parts.waiting(wire.HOOK) if data["hook"] == "10-b"]
    assert outputs == ["others=\n", "others=\n"]


def test_the_hooks_of_a_drill_outlive_a_restart_of_the_agent(participant: Participant, hooks: HookFolder) -> None:
    hooks.add("prepare", "10-a")
    hooks.add("recover", "10-b")
    participant.with_hooks(hooks)
    participant.send("rehearse")
    participant.run_hooks()
    participant.parts.restart()
    participant.with_hooks(hooks)
    assert hooks.lines() == [f"prepare 10-a {DRILL}"], "it is listed still"
    participant.pass_time(60)
    participant.pass_time(5)
    assert hooks.lines()[1:] == [f"recover 10-b {DRILL}"]
