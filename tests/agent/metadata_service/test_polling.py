"""The poller against the simulator: what is forwarded, what odd answers do, and reports before identification."""

from __future__ import annotations

import json
import logging
import os
import resource
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.metadata_service.client import LIMIT, Imds
from drydock_agent.metadata_service.early_poller import MAX_DOCUMENTS, EarlyDocument, EarlyPoller
from drydock_agent.metadata_service.scheduled_events import ScheduledEvents

from tests.agent.agents import VM_IDS, Agents, PartsFactory, SteppedClock
from tests.agent.fleet_double import FleetDouble, eventually


def test_a_document_is_forwarded_when_it_changes_and_not_otherwise(
    parts: PartsFactory, simulator: RunningSimulator
) -> None:
    made = parts()
    made.polls(3)
    event_id = simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    made.polls(3)
    first, second = made.waiting(wire.DOCUMENT)
    assert first["incarnation"] is not None and second["incarnation"] > first["incarnation"]
    assert json.loads(second["body"])["Events"][0]["EventId"] == event_id
    assert second["api_version"] == "2024-07-09"
    assert made.poller.listed(event_id.lower()) == event_id


def test_an_unchanged_document_is_reminded_of(parts: PartsFactory) -> None:
    made = parts(reminder_seconds=300)
    made.polls(10, pause=100)
    [document] = made.waiting(wire.DOCUMENT)
    same = {"hash": document["hash"], "incarnation": document["incarnation"]}
    assert made.waiting(wire.REMINDER) == [same] * 3


def test_a_restart_forwards_nothing_twice_but_reminds(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    event_id = simulator.events.create(set="web", type="Freeze", notice_seconds=600)
    made = parts()
    made.poller.step()
    made.close()
    clock.advance(60)
    again = parts()
    assert again.poller.listed(event_id) == event_id, "known before the first poll"
    assert not again.poller.seen.is_set()
    again.poller.step()
    assert len(again.waiting(wire.DOCUMENT)) == 1
    assert len(again.waiting(wire.REMINDER)) == 1


def test_after_forgetting_the_whole_document_is_forwarded_again(parts: PartsFactory, clock: SteppedClock) -> None:
    made = parts()
    made.poller.step()
    made.poller.resend()
    clock.advance(1)
    made.poller.step()
    first, second = made.waiting(wire.DOCUMENT)
    assert first == second


@pytest.mark.parametrize("fault", ["empty", "status-404", "status-410", "status-500", "status-503", "reset"])
def test_an_odd_answer_is_no_good_poll_and_forwards_nothing(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock, fault: str
) -> None:
    event_id = simulator.events.create(set="web", type="Freeze", notice_seconds=600)
    made = parts()
    made.poller.step()
    good = made.poller.last_poll_at
    simulator.fault("web-vm1", fault, count=2)
    for _ in range(2):
        clock.advance(1)
        assert made.poller.step() > 0
    assert made.poller.last_poll_at == good
    assert made.poller.listed(event_id) == event_id, "what was listed stays listed"
    clock.advance(1)
    made.poller.step()
    assert made.poller.last_poll_at == good + timedelta(seconds=3) if good else False
    assert len(made.waiting()) == 1


def test_too_many_requests_slow_the_poller_down(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    made = parts()
    simulator.fault("web-vm1", "status-429")
    assert made.poller.step() == 5.0
    clock.advance(5)
    assert made.poller.step() == 1.0


@pytest.mark.parametrize(
    ("fault", "problem", "slower"),
    [("status-403", "status-403", [2, 4, 8, 16, 30, 30, 30]), ("garbage", wire.UNREADABLE, [2, 4, 5, 5, 5, 5, 5])],
)
def test_a_lasting_refusal_slows_the_poller_down_and_is_named(
    parts: PartsFactory,
    simulator: RunningSimulator,
    clock: SteppedClock,
    fault: str,
    problem: str,
    slower: list[float],
) -> None:
    made = parts()
    made.poller.step()
    assert made.poller.problem == wire.NO_PROBLEM
    simulator.fault("web-vm1", fault, count=7)
    pauses = []
    for _ in range(7):
        clock.advance(40)
        pauses.append(made.poller.step())
        assert made.poller.problem == problem
    assert pauses == slower
    clock.advance(40)
    assert made.poller.step() == 1.0 and made.poller.problem == wire.NO_PROBLEM


@pytest.mark.parametrize(
    ("fault", "problem"),
    [("status-404", "status-404"), ("status-500", "status-500"), ("empty", wire.EMPTY), ("reset", wire.NO_ANSWER)],
)
def test_a_refusal_that_passes_is_named_and_asked_again_as_often(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock, fault: str, problem: str
) -> None:
    made = parts()
    simulator.fault("web-vm1", fault, count=2)
    for _ in range(2):
        assert made.poller.step() == 1.0 and made.poller.problem == problem
        clock.advance(1)


def test_what_is_no_document_is_forwarded_once_and_changes_nothing_that_is_listed(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    event_id = simulator.events.create(set="web", type="Freeze", notice_seconds=600)
    made = parts()
    made.poller.step()
    good = made.poller.last_poll_at
    simulator.fault("web-vm1", "garbage", count=3)
    for _ in range(3):
        clock.advance(1)
        made.poller.step()
    assert [data["incarnation"] is None for data in made.waiting(wire.DOCUMENT)] == [False, True]
    assert (made.poller.last_poll_at, made.poller.listed(event_id)) == (good, event_id)


def test_every_page_that_is_no_document_is_kept_up_to_so_many_bytes_an_hour(
    parts: PartsFactory, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parts()
    pages = [b"page %d" % number for number in range(5)] + [bytes([65 + number]) * LIMIT for number in range(5)]
    answers = iter([*pages, b"an hour later"])
    monkeypatch.setattr(made.poller._imds, "scheduled_events", lambda first_call: next(answers))
    made.polls(len(pages), pause=5)
    assert [len(data["body"]) for data in made.waiting(wire.DOCUMENT)] == [6] * 5 + [LIMIT] * 3
    assert made.poller.last_poll_at is None
    clock.advance(3600)
    made.poller.step()
    assert made.waiting(wire.DOCUMENT)[-1]["body"] == "an hour later"


def test_after_an_unreadable_answer_the_same_document_is_reported_again(
    parts: PartsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parts()
    document = b'{"DocumentIncarnation": 1, "Events": []}'
    answers = iter([document, b"a page", document, document])
    monkeypatch.setattr(made.poller._imds, "scheduled_events", lambda first_call: next(answers))
    made.polls(4)
    assert [data["body"] for data in made.waiting(wire.DOCUMENT)] == [document.decode(), "a page"]
    assert len(made.waiting(wire.REMINDER)) == 1


def test_the_same_warning_comes_once_an_hour(
    parts: PartsFactory, simulator: RunningSimulator, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(poll_seconds=60.0)
    simulator.fault("web-vm1", "status-503", count=62)
    with caplog.at_level(logging.INFO, "drydock_agent"):
        made.polls(62, pause=60)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert warnings[1].endswith("(59 more of these since the last such line)")


@pytest.mark.skipif(os.name != "posix", reason="limits a file's size by setrlimit")
def test_a_full_disk_stops_no_poll_and_what_was_seen_meanwhile_is_written_later(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    made = parts()
    made.poller.step()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = (made.spool.path.parent / "spool.sqlite3-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal, before[1]))
    try:
        events = []
        for _ in range(2):
            events.append(simulator.events.create(set="web", type="Freeze", notice_seconds=600))
            clock.advance(1)
            made.poller.step()
        last = made.poller.last_poll_at
        assert last == clock.now()
        assert len(made.waiting(wire.DOCUMENT)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    clock.advance(1)
    made.poller.step()
    seen = [[event["EventId"] for event in json.loads(data["body"])["Events"]] for data in made.waiting(wire.DOCUMENT)]
    assert [len(ids) for ids in seen] == [0, 1, 2]
    assert seen[2] == events


def test_no_proxy_is_used_and_the_header_is_right(simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    imds = Imds(simulator.vm_url("web-vm1"))
    found = imds.instance()
    assert found["vmId"] == VM_IDS["web-vm1"]
    assert [address[:5] for address in found["privateIpAddresses"]] == ["10.0."]
    imds.scheduled_events()
    imds.close()
    headers = {name.lower(): value for name, value in simulator.log(limit=1)[-1]["headers"].items()}
    assert headers["metadata"] == "true"
    assert "x-forwarded-for" not in headers


@pytest.mark.parametrize("incarnation", [2, 5])
def test_hooks_see_an_answer_that_did_not_advance_only_once_the_next_poll_confirms_it(
    parts: PartsFactory, monkeypatch: pytest.MonkeyPatch, clock: SteppedClock, incarnation: int
) -> None:
    made = parts()
    event = {"EventId": "A", "EventStatus": "Scheduled", "EventType": "Reboot", "Resources": ["web-vm1"]}
    listing = json.dumps({"DocumentIncarnation": 5, "Events": [event]}).encode()
    empty = json.dumps({"DocumentIncarnation": incarnation, "Events": []}).encode()
    seen: list[bool] = []
    poller = ScheduledEvents(
        made.context, imds=made.imds, on_document=lambda document: seen.append("a" in document.listed)
    )

    def polled(*bodies: bytes) -> list[bool]:
        seen.clear()
        for body in bodies:
            monkeypatch.setattr(made.imds, "scheduled_events", lambda body=body, **_: body)
            poller.step()
            clock.advance(1)
        return list(seen)

    assert polled(listing, empty) == [True]
    assert polled(listing) == [True], "listed again: nothing ended"
    assert polled(empty) == []
    assert polled(empty, empty) == [False], "confirmed once"
    bodies = [json.loads(one["body"]) for one in made.waiting(wire.DOCUMENT)]
    assert [bool(one["Events"]) for one in bodies] == [True, False, True, False], "each change is forwarded at once"


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
    assert not fleet.reports(), "the machine's identity is not known yet"
    simulator.clear_faults()
    eventually(lambda: len(fleet.reports(wire.DOCUMENT)) >= 3)
    bodies = [json.loads(report["data"]["body"])["Events"] for report in fleet.reports(wire.DOCUMENT)]
    assert [[event["EventId"] for event in events] for events in bodies[:3]] == [[], [event_id], []]


@pytest.fixture
def early(simulator: RunningSimulator, clock: SteppedClock) -> Iterator[EarlyPoller]:
    imds = Imds(simulator.vm_url("web-vm1"))
    yield EarlyPoller(imds, clock, poll_seconds=1.0, stop=Pauses(clock))
    imds.close()


def test_it_polls_as_often_as_ever_and_keeps_what_differs(simulator: RunningSimulator, early: EarlyPoller) -> None:
    early.pause(3)
    simulator.events.create(set="web", type="Freeze", resources=["web-vm1"], notice_seconds=600)
    early.pause(3)
    first, second = early.documents
    assert first.api_version == second.api_version == "2024-07-09"
    assert first.at < second.at


def test_waiting_reports_are_bounded_and_include_the_newest_answer(
    simulator: RunningSimulator, early: EarlyPoller
) -> None:
    for _ in range(MAX_DOCUMENTS + 3):
        simulator.fault("web-vm1", "incarnation-jump")
        early.pause(1)
    assert len(early.documents) == MAX_DOCUMENTS
    numbers = [json.loads(document.body)["DocumentIncarnation"] for document in early.documents]
    assert numbers == sorted(numbers) and numbers[-1] - numbers[-2] > numbers[1] - numbers[0]


def test_missing_answer_creates_no_report(simulator: RunningSimulator, early: EarlyPoller) -> None:
    simulator.fault("web-vm1", "status-503", count=2)
    early.pause(2)
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
