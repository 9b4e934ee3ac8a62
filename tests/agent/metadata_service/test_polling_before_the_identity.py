"""Polling before identification: the agent keeps Azure's announcements and reports them once the machine is known."""

from __future__ import annotations

import json
import threading

from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.metadata_service.client import Imds
from drydock_agent.metadata_service.early_poller import MAX_DOCUMENTS, EarlyDocument, EarlyPoller

from tests.agent.agents import Agents, PartsFactory, SteppedClock
from tests.agent.fleet_double import FleetDouble, eventually

FOR_EVER = 3600
EVENTS = "/metadata/scheduledevents"


class Pauses(threading.Event):
    """An event whose waits take no time but move the clock."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.advance(timeout or 0.0)
        return False


def test_event_that_ends_before_the_machine_is_identified_is_reported(
    agents: Agents, simulator: RunningSimulator, fleet: FleetDouble
) -> None:
    simulator.fault("web-vm1", "instance-404", seconds=FOR_EVER)
    agents.run()

    def polls() -> int:
        return sum(EVENTS in entry["path"] for entry in simulator.log(vm="web-vm1"))

    def polled_again() -> None:
        known = polls()
        eventually(lambda: polls() > known + 1)

    polled_again()
    event_id = simulator.events.create(set="web", type="Freeze", resources=["web-vm1"], notice_seconds=600)
    polled_again()
    simulator.events.cancel(event_id)
    polled_again()
    assert not fleet.reports(), "nobody knows yet whose reports they would be"
    simulator.clear_faults()
    eventually(lambda: len(fleet.reports(wire.DOCUMENT)) >= 3)
    bodies = [json.loads(report["data"]["body"])["Events"] for report in fleet.reports(wire.DOCUMENT)]
    assert [[event["EventId"] for event in events] for events in bodies[:3]] == [[], [event_id], []]


def test_it_polls_as_often_as_ever_and_keeps_what_differs(simulator: RunningSimulator, clock: SteppedClock) -> None:
    imds = Imds(simulator.vm_url("web-vm1"))
    early = EarlyPoller(imds, clock, poll_seconds=1.0, stop=Pauses(clock))
    early.pause(3)
    simulator.events.create(set="web", type="Freeze", resources=["web-vm1"], notice_seconds=600)
    early.pause(3)
    imds.close()
    first, second = early.documents
    assert first.api_version == second.api_version == "2024-07-09"
    assert first.at < second.at


def test_waiting_reports_are_bounded_and_include_the_newest_answer(
    simulator: RunningSimulator, clock: SteppedClock
) -> None:
    imds = Imds(simulator.vm_url("web-vm1"))
    early = EarlyPoller(imds, clock, poll_seconds=1.0, stop=Pauses(clock))
    for _ in range(MAX_DOCUMENTS + 3):
        simulator.fault("web-vm1", "incarnation-jump")
        early.pause(1)
    imds.close()
    assert len(early.documents) == MAX_DOCUMENTS
    numbers = [json.loads(document.body)["DocumentIncarnation"] for document in early.documents]
    assert numbers == sorted(numbers) and numbers[-1] - numbers[-2] > numbers[1] - numbers[0]


def test_missing_answer_creates_no_report(clock: SteppedClock, simulator: RunningSimulator) -> None:
    simulator.fault("web-vm1", "status-503", count=2)
    imds = Imds(simulator.vm_url("web-vm1"))
    early = EarlyPoller(imds, clock, poll_seconds=1.0, stop=Pauses(clock))
    early.pause(2)
    imds.close()
    assert early.documents == []


def test_what_was_read_before_is_the_first_that_is_forwarded_with_its_own_times(
    parts: PartsFactory, clock: SteppedClock
) -> None:
    made = parts()
    body = b'{"DocumentIncarnation": 7, "Events": []}'
    at = clock.now()
    clock.advance(30)
    made.poller.add_early_documents([EarlyDocument(body, at, "2019-08-01")])
    assert made.poller.last_poll_at == at
    made.poller.step()
    first, _ = made.waiting(wire.DOCUMENT)
    assert (first["incarnation"], first["api_version"]) == (7, "2019-08-01")
