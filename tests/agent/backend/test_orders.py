"""Orders: each carried out once, written down first, answered always."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.backend.client import order_to_text, read_orders
from drydock_agent.spool.store import Spool
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import VM_IDS, Agents, Parts, PartsFactory, SteppedClock
from tests.agent.fleet_double import FleetDouble, eventually

MACHINE = VM_IDS["web-vm1"]


def announced(simulator: RunningSimulator) -> str:
    return simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)


def order(
    parts: Parts, event_id: str, *, order_id: str = "order-1", machine: str = MACHINE, seconds: float = 60
) -> wire.Order:
    now = parts.server_clock.now()
    return wire.Order(
        id=order_id,
        machine_id=machine,
        event_id=event_id,
        issued_at=now,
        expires_at=now + timedelta(seconds=seconds),
        via="celery",
    )


def posts(simulator: RunningSimulator, event_id: str) -> list[str]:
    """The bodies of the StartRequests that named the event, in any case."""
    return [entry["body"] for entry in simulator.log(method="POST") if event_id.lower() in entry["body"].lower()]


def test_an_order_is_carried_out_and_answered(parts: PartsFactory, simulator: RunningSimulator) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    made.orders.accept([order(made, event_id.lower())])
    assert made.orders.unacknowledged() == ["order-1:celery"]
    made.carry_out()
    [receipt] = made.waiting(wire.RECEIPT)
    assert (receipt["outcome"], receipt["azure_status"], receipt["via"]) == ("answered", 200, "celery")
    assert receipt["event_id"] == event_id.lower() and receipt["attempted_at"]
    [body] = posts(simulator, event_id)
    assert json.loads(body) == {"StartRequests": [{"EventId": event_id}]}, "spelled as the document spells it"
    assert made.orders.unacknowledged() == ["order-1:celery"], "held until the backend has the receipt"
    made.spool.acknowledge(2, {})
    assert made.orders.unacknowledged() == []


def test_a_repeated_order_is_answered_from_memory(parts: PartsFactory, simulator: RunningSimulator) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    same = order(made, event_id)
    assert made.orders.accept([same])
    assert not made.orders.accept([same])
    made.carry_out()
    assert not made.orders.accept([same]), "its receipt is on its way"
    made.waiting()
    made.spool.acknowledge(2, {})
    assert made.orders.accept([same])
    made.carry_out()
    made.close()

    again = parts()
    again.poller.step()
    again.waiting()
    again.spool.acknowledge(3, {})
    assert again.orders.accept([same]), "remembered beyond a restart"
    again.carry_out()
    [receipt] = again.waiting(wire.RECEIPT)
    assert receipt["outcome"] == "answered"
    assert len(posts(simulator, event_id)) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seconds": 0}, "expired"),
        ({"machine": "another"}, "wrong-machine"),
        ({"event_id": "00000000-0000-0000-0000-000000000000"}, "not-listed"),
        ({"event_id": ""}, "unreadable"),
    ],
)
def test_an_order_that_is_not_for_azure_is_refused_with_its_reason(
    parts: PartsFactory, simulator: RunningSimulator, change: dict[str, str], reason: str
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    made.orders.accept([order(made, **{"event_id": event_id, **change})])  # type: ignore[arg-type]
    made.carry_out()
    [receipt] = made.waiting(wire.RECEIPT)
    assert (receipt["outcome"], receipt["reason"], receipt["azure_status"]) == ("refused", reason, None)
    assert posts(simulator, event_id) == []


def test_an_order_for_an_event_that_has_started_is_refused_because_azures_200_would_prove_nothing(
    parts: PartsFactory, simulator: RunningSimulator
) -> None:
    event_id = announced(simulator)
    simulator.events.start(event_id)
    made = parts()
    made.poller.step()
    made.orders.accept([order(made, event_id)])
    made.carry_out()
    [receipt] = made.waiting(wire.RECEIPT)
    assert (receipt["outcome"], receipt["reason"], receipt["azure_status"]) == ("refused", "already-started", None)
    assert posts(simulator, event_id) == []


def test_a_refused_order_that_comes_again_is_refused_from_memory_also_after_a_restart(
    parts: PartsFactory, simulator: RunningSimulator
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    expired = order(made, event_id, seconds=0)
    made.orders.accept([expired])
    made.carry_out()
    made.waiting()
    made.spool.acknowledge(2, {})
    made.close()
    again = parts()
    again.poller.step()
    again.waiting()
    again.spool.acknowledge(3, {})
    # Told differently now, it is still the same order.
    assert again.orders.accept([order(again, event_id)])
    again.carry_out()
    [receipt] = again.waiting(wire.RECEIPT)
    assert (receipt["outcome"], receipt["reason"]) == ("refused", "expired")
    assert posts(simulator, event_id) == []


# Where an agent may be stopped, the reports that are delivered after it came back, and how often Azure was asked.
STOPS = {
    "before anything was written": 1,
    "after the attempt was written": 1,
    "after Azure answered": 2,
    "after the receipt was written": 1,
    "after the receipt was sent": 1,
}


@pytest.mark.parametrize(("stop", "asked"), STOPS.items())
def test_wherever_the_agent_is_stopped_the_order_is_answered_once_and_truly(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock, stop: str, asked: int
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    one = order(made, event_id)
    if stop == "after the attempt was written":
        made.spool.attempt(one.id, order_to_text(one), clock.now())
    elif stop != "before anything was written":
        made.orders.accept([one])
        if stop == "after Azure answered":
            made.orders._carry_out(made.orders._queue[0])
        else:
            made.carry_out()
        if stop == "after the receipt was sent":
            made.waiting()
    made.close()
    clock.advance(2)
    again = parts()
    again.poller.step()
    # The backend has no receipt yet, so it offers the order again.
    again.orders.accept([one])
    again.carry_out()
    receipts = again.waiting(wire.RECEIPT)
    assert [(receipt["outcome"], receipt["azure_status"]) for receipt in receipts] == [("answered", 200)]
    assert len(posts(simulator, event_id)) == asked
    assert simulator.events.get(event_id)["started_by"] == "approval"


def test_the_machine_id_is_compared_without_case(parts: PartsFactory, simulator: RunningSimulator) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    made.orders.accept([order(made, event_id, machine=MACHINE.upper())])
    made.carry_out()
    assert made.waiting(wire.RECEIPT)[0]["outcome"] == "answered"


def test_expiry_goes_by_the_backends_clock(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    made.server_clock.contact(clock.now() - timedelta(days=1), clock.monotonic())
    still_good = order(made, event_id)
    assert still_good.expires_at is not None and still_good.expires_at < clock.now()
    clock.wall += timedelta(days=30)
    made.orders.accept([still_good])
    made.carry_out()
    clock.advance(61)
    made.orders.accept(
        [wire.Order(**{**{name: getattr(still_good, name) for name in wire.Order.__slots__}, "id": "2"})]
    )
    made.carry_out()
    assert [receipt["outcome"] for receipt in made.waiting(wire.RECEIPT)] == ["answered", "refused"]


def test_an_attempt_without_receipt_is_repeated_after_a_crash(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    made.orders.accept([order(made, event_id)])
    # The crash: the attempt is on disk, Azure was asked, and the process is gone before the receipt.
    made.orders._carry_out(made.orders._queue[0])
    made.close()
    clock.advance(5)
    again = parts()
    assert again.orders.unacknowledged() == ["order-1:celery"]
    again.poller.step()
    again.carry_out()
    [receipt] = again.waiting(wire.RECEIPT)
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", 200)
    assert len(posts(simulator, event_id)) == 2, "Azure answers 200 twice and starts once"


def test_an_interrupted_attempt_that_came_too_late_says_that_it_is_not_known(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    one = order(made, event_id)
    made.spool.attempt(one.id, order_to_text(one), clock.now())
    made.close()
    clock.advance(61)
    again = parts()
    again.poller.step()
    again.carry_out()
    [receipt] = again.waiting(wire.RECEIPT)
    assert receipt["outcome"] == "failed"
    assert receipt["reason"] == "the agent stopped while it asked; now the order is expired"
    assert posts(simulator, event_id) == []


def test_after_a_start_an_order_waits_for_the_first_poll(parts: PartsFactory, simulator: RunningSimulator) -> None:
    event_id = announced(simulator)
    made = parts()
    made.orders.accept([order(made, event_id)])
    assert 0 < made.orders.step() < 0.1
    made.poller.step()
    made.carry_out()
    assert made.waiting(wire.RECEIPT)[0]["outcome"] == "answered"


@pytest.mark.parametrize("fault", ["status-503", "status-500", "status-429"])
def test_whether_a_busy_azure_is_asked_again_is_for_the_backend_to_say(
    parts: PartsFactory, simulator: RunningSimulator, fault: str
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    simulator.fault("web-vm1", fault, method="POST")
    made.orders.accept([order(made, event_id)])
    made.carry_out()
    [receipt] = made.waiting(wire.RECEIPT)
    assert receipt["azure_status"] == int(fault.removeprefix("status-"))
    assert receipt["posts"] == 1
    assert receipt["retry_after"] == (None if fault == "status-500" else 1.0)


def test_a_metadata_service_that_is_behind_is_asked_again(parts: PartsFactory, simulator: RunningSimulator) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    simulator.fault("web-vm1", "status-404", method="POST")
    made.orders.accept([order(made, event_id)])
    made.carry_out()
    [receipt] = made.waiting(wire.RECEIPT)
    assert (receipt["azure_status"], receipt["posts"]) == (200, 2)


def test_no_answer_from_azure_is_a_failure_in_words(parts: PartsFactory, simulator: RunningSimulator) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    simulator.fault("web-vm1", "reset", method="POST", count=3)
    made.orders.accept([order(made, event_id)])
    made.carry_out()
    [receipt] = made.waiting(wire.RECEIPT)
    assert receipt["outcome"] == "failed" and receipt["reason"] and receipt["attempted_at"]
    assert receipt["posts"] == 3


def test_orders_keep_their_receipts_when_the_spool_is_numbered_anew(
    parts: PartsFactory, simulator: RunningSimulator
) -> None:
    event_id = announced(simulator)
    made = parts()
    made.poller.step()
    made.orders.accept([order(made, event_id)])
    made.carry_out()
    assert not made.spool.acknowledge(99, {})
    made.orders.reload()
    assert made.orders.unacknowledged() == ["order-1:celery"]
    made.waiting()
    made.spool.acknowledge(2, {})
    assert made.orders.unacknowledged() == []


def _objects(inner: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    names = st.sampled_from(["id", "machine_id", "event_id", "issued_at", "expires_at", "via", "other"])
    return st.dictionaries(names, inner)


orders_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | _objects(inner),
    max_leaves=15,
)


@given(orders_json)
def test_no_answer_of_the_backend_makes_the_reader_of_orders_raise(content: object) -> None:
    orders, _ = read_orders(content)
    for one in orders:
        [again], unreadable = read_orders([json.loads(order_to_text(one))])
        assert (again, unreadable) == (one, 0)


@pytest.mark.real_time
@pytest.mark.flow
def test_an_order_reaches_azure_at_once_and_its_receipt_comes_back(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble
) -> None:
    event_id = announced(simulator)
    agents.at_work()
    eventually(lambda: any(document["Events"] for document in fleet.documents()))
    fleet.order(MACHINE, event_id)
    [receipt] = eventually(fleet.receipts)
    assert (receipt["outcome"], receipt["azure_status"], receipt["via"]) == ("answered", 200, "celery")
    assert len(posts(simulator, event_id)) == 1
    # The next call for orders, or the batch with the receipt, says that the order arrived.
    eventually(lambda: "order-1" in fleet.delivered)


@pytest.mark.real_time
@pytest.mark.flow
def test_an_order_in_the_answer_to_a_report_is_carried_out_too(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble
) -> None:
    # Every held call fails, so that only the uploader can bring it.
    fleet.statuses = [("/orders", 503)] * 1000
    agents.run()
    event_id = announced(simulator)
    eventually(lambda: any(document["Events"] for document in fleet.documents()))
    fleet.order(MACHINE, event_id)
    # News to deliver, and with its answer comes the order.
    simulator.events.create(set="web", type="Freeze", notice_seconds=600)
    [receipt] = eventually(fleet.receipts)
    assert (receipt["outcome"], receipt["azure_status"]) == ("answered", 200)


@pytest.mark.real_time
@pytest.mark.fault
def test_an_agent_killed_while_azure_is_asked_asks_again_and_answers(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble
) -> None:
    event_id = announced(simulator)
    process = agents.at_work()
    eventually(lambda: any(document["Events"] for document in fleet.documents()))
    simulator.fault("web-vm1", "hang", method="POST", delay_seconds=30)
    fleet.order(MACHINE, event_id)
    eventually(lambda: "order-1" in fleet.delivered)
    eventually(lambda: _attempted(agents.folder / "state" / "spool.sqlite3-wal", "order-1"))
    process.kill()
    # It may have died before its question was on the way; then the fault still waits for one.
    simulator.clear_faults()
    agents.at_work()
    [receipt] = eventually(fleet.receipts)
    assert (receipt["order_id"], receipt["outcome"], receipt["azure_status"]) == ("order-1", "answered", 200)


def _attempted(log: Path, order_id: str) -> bool:
    # Looked for in the raw log: opening the spool would need the lock that the agent holds.
    return order_id.encode() in log.read_bytes()


def test_the_spool_remembers_a_bounded_number_of_orders(
    tmp_path: Path, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drydock_agent.spool.store.ORDERS_REMEMBERED", 3)
    spool = Spool(tmp_path / "spool.sqlite3")
    for number in range(6):
        spool.receipt(str(number), "{}", wire.RECEIPT, clock.now(), {})
    assert [stored.id for stored in spool.orders()] == ["3", "4", "5"]
    spool.close()
