"""The poller against the simulator: what is forwarded, what odd answers do, its interval, and early reports."""

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.metadata_service.client import LIMIT, Imds, MetadataUnavailable
from drydock_agent.metadata_service.early_poller import MAX_DOCUMENTS, EarlyDocument, EarlyPoller
from drydock_agent.metadata_service.rate_limit import MAX_PER_SECOND, RateLimit
from drydock_agent.metadata_service.scheduled_events import SPOOL_CHECK_SECONDS, SWITCHED_OFF_SECONDS, ScheduledEvents

from tests.agent.agents import FLEET, VM_IDS, Agents, Parts, SteppedClock, Unhurried, announce, full_disk
from tests.agent.fleet_double import FleetDouble, eventually


def test_a_document_is_forwarded_when_it_changes_and_not_otherwise(parts: Parts) -> None:
    parts.polls(3)
    event_id = parts.announce("Reboot")
    parts.polls(3)
    first, second = parts.waiting(wire.DOCUMENT)
    assert first["incarnation"] is not None and second["incarnation"] > first["incarnation"]
    assert json.loads(second["body"])["Events"][0]["EventId"] == event_id
    assert second["api_version"] == "2024-07-09"
    assert parts.poller.listed(event_id.lower()) == event_id


def test_an_unchanged_document_is_reminded_of(parts: Parts) -> None:
    parts.polls(10, pause=100)
    [document] = parts.waiting(wire.DOCUMENT)
    same = {"hash": document["hash"], "incarnation": document["incarnation"]}
    assert parts.waiting(wire.REMINDER) == [same] * 3


def test_a_restart_forwards_nothing_twice_but_reminds(parts: Parts) -> None:
    event_id = parts.announce()
    parts.poller.step()
    parts.restart(seconds=60)
    assert parts.poller.listed(event_id) == event_id, "known before the first poll"
    assert not parts.poller.seen.is_set()
    parts.poller.step()
    assert [len(parts.waiting(kind)) for kind in (wire.DOCUMENT, wire.REMINDER)] == [1, 1]


def test_after_forgetting_and_with_any_other_incarnation_the_whole_document_is_forwarded(parts: Parts) -> None:
    parts.polls(1)
    parts.poller.resend()
    parts.polls(1)
    for fault in ("incarnation-jump", "incarnation-reset"):
        parts.fault(fault)
        parts.polls(1)
    first, second, jumped, restarted = parts.waiting(wire.DOCUMENT)
    assert first == second
    assert (jumped["incarnation"], restarted["incarnation"]) == (first["incarnation"] + 3, 1)


# The problem that each answer is named as, and the pauses after it while it lasts.
ANSWERS: dict[str, tuple[str, list[int]]] = {
    "empty": (wire.EMPTY, [1] * 7),
    "cut-short": (wire.NO_ANSWER, [1] * 7),
    "reset": (wire.NO_ANSWER, [1] * 7),
    **{f"status-{status}": (f"status-{status}", [1] * 7) for status in (404, 410, 500, 503)},
    "status-429": ("status-429", [5] * 7),
    "status-403": ("status-403", [2, 4, 8, 16, 30, 30, 30]),
    "garbage": (wire.UNREADABLE, [2, 4, 5, 5, 5, 5, 5]),
}


@pytest.mark.parametrize("fault", ANSWERS)
def test_an_odd_answer_is_named_and_only_a_lasting_refusal_slows_the_poller_down(parts: Parts, fault: str) -> None:
    problem, pauses = ANSWERS[fault]
    event_id = parts.announce()
    parts.polls(1)
    good = parts.poller.last_poll_at
    parts.fault(fault, count=7)
    for pause in pauses:
        assert (parts.poller.step(), parts.poller.problem) == (pause, problem)
        parts.clock.advance(pause)
    assert (parts.poller.last_poll_at, parts.poller.listed(event_id)) == (good, event_id), "it stays listed"
    # Only what can be kept of an answer is forwarded, once.
    documents = [data["incarnation"] is None for data in parts.waiting(wire.DOCUMENT)]
    assert documents == ([False, True] if fault == "garbage" else [False])
    assert (parts.poller.step(), parts.poller.problem) == (1, wire.NO_PROBLEM)
    assert parts.poller.last_poll_at == parts.clock.now()


def test_pages_that_are_no_document_are_kept_up_to_a_limit(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [b"page %d" % number for number in range(5)] + [bytes([65 + number]) * LIMIT for number in range(5)]
    answers = iter([*pages, b"an hour later"])
    monkeypatch.setattr(parts.poller._imds, "scheduled_events", lambda first_call: next(answers))
    parts.polls(len(pages), pause=5)
    assert [len(data["body"]) for data in parts.waiting(wire.DOCUMENT)] == [6] * 5 + [LIMIT] * 3
    assert parts.poller.last_poll_at is None
    parts.clock.advance(3600)
    parts.poller.step()
    assert parts.waiting(wire.DOCUMENT)[-1]["body"] == "an hour later"


def test_after_an_unreadable_answer_a_document_is_reported_again(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    document = b'{"DocumentIncarnation": 1, "Events": []}'
    answers = iter([document, b"a page", document, document])
    monkeypatch.setattr(parts.poller._imds, "scheduled_events", lambda first_call: next(answers))
    parts.polls(4)
    assert [data["body"] for data in parts.waiting(wire.DOCUMENT)] == [document.decode(), "a page"]
    assert len(parts.waiting(wire.REMINDER)) == 1


def test_the_same_warning_comes_once_an_hour(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    parts.restart(poll_seconds=60.0)
    parts.fault("status-503", count=62)
    with caplog.at_level(logging.INFO, "drydock_agent"):
        parts.polls(62, pause=60)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert warnings[1].endswith("(59 more of these since the last such line)")


def test_a_full_disk_is_stated_and_what_was_seen_meanwhile_is_written_later(parts: Parts) -> None:
    parts.poller.step()
    spooled = parts.poller.spooled_poll
    with full_disk(parts.spool):
        parts.polls(2, pause=SPOOL_CHECK_SECONDS)
        assert (parts.poller.problem, parts.poller.spooled_poll) == (wire.SPOOL_UNWRITABLE, spooled)
        assert parts.waiting(wire.REMINDER) == []
        events = []
        for _ in range(2):
            events.append(parts.announce())
            parts.clock.advance(1)
            parts.poller.step()
        assert parts.poller.last_poll_at == parts.clock.now()
        assert len(parts.waiting(wire.DOCUMENT)) == 1
        assert parts.poller.problem == wire.SPOOL_UNWRITABLE
    parts.clock.advance(1)
    parts.poller.step()
    assert (parts.poller.problem, parts.poller.spooled_poll[0]) == (wire.NO_PROBLEM, parts.poller.last_poll_at)
    seen = [[event["EventId"] for event in json.loads(data["body"])["Events"]] for data in parts.waiting(wire.DOCUMENT)]
    assert [len(ids) for ids in seen] == [0, 1, 2]
    assert seen[2] == events


def test_no_proxy_is_used_and_the_header_is_right(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    found = parts.imds.instance()
    assert found["vmId"] == VM_IDS["web-vm1"]
    assert [address[:5] for address in found["privateIpAddresses"]] == ["10.0."]
    parts.imds.scheduled_events()
    headers = {name.lower(): value for name, value in parts.simulator.log(limit=1)[-1]["headers"].items()}
    assert headers["metadata"] == "true" and "x-forwarded-for" not in headers


@pytest.mark.parametrize("incarnation", [2, 5])
def test_hooks_see_old_answers_once_confirmed(parts: Parts, monkeypatch: pytest.MonkeyPatch, incarnation: int) -> None:
    event = {"EventId": "A", "EventStatus": "Scheduled", "EventType": "Reboot", "Resources": ["web-vm1"]}
    listing = json.dumps({"DocumentIncarnation": 5, "Events": [event]}).encode()
    empty = json.dumps({"DocumentIncarnation": incarnation, "Events": []}).encode()
    seen: list[bool] = []
    poller = ScheduledEvents(
        parts.context, imds=parts.imds, on_document=lambda document: seen.append("a" in document.listed)
    )

    def polled(*bodies: bytes) -> list[bool]:
        seen.clear()
        for body in bodies:
            monkeypatch.setattr(parts.imds, "scheduled_events", lambda body=body, **_: body)
            poller.step()
            parts.clock.advance(1)
        return list(seen)

    assert polled(listing, empty) == [True]
    assert polled(listing) == [True], "listed again: nothing ended"
    assert polled(empty) == []
    assert polled(empty, empty) == [False], "confirmed once"
    bodies = [json.loads(one["body"]) for one in parts.waiting(wire.DOCUMENT)]
    assert [bool(one["Events"]) for one in bodies] == [True, False, True, False], "each change is forwarded at once"


class Pauses(threading.Event):
    """An event whose waits take no time but move the clock."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.advance(timeout or 0.0)
        return False


def test_event_that_ends_before_the_machine_is_identified_is_reported(agents: Agents) -> None:
    agents.simulator.fault("web-vm1", "instance-404", seconds=3600)
    agents.run()

    def polls() -> int:
        return sum("/metadata/scheduledevents" in entry["path"] for entry in agents.simulator.log(vm="web-vm1"))

    def polled_again() -> None:
        known = polls()
        eventually(lambda: polls() > known + 1)

    polled_again()
    event_id = agents.announce()
    polled_again()
    agents.simulator.events.cancel(event_id)
    polled_again()
    assert not agents.fleet.reports(), "the machine's identity is not known yet"
    agents.simulator.clear_faults()
    eventually(lambda: len(agents.fleet.reports(wire.DOCUMENT)) >= 3)
    bodies = [json.loads(report["data"]["body"])["Events"] for report in agents.fleet.reports(wire.DOCUMENT)]
    assert [[event["EventId"] for event in events] for events in bodies[:3]] == [[], [event_id], []]


@pytest.fixture
def early(simulator: RunningSimulator, clock: SteppedClock) -> Iterator[EarlyPoller]:
    imds = Imds(simulator.vm_url("web-vm1"), rate_limit=Unhurried(clock))
    yield EarlyPoller(imds, clock, poll_seconds=1.0, stop=Pauses(clock))
    imds.close()


def test_it_polls_as_often_as_ever_and_keeps_what_differs(simulator: RunningSimulator, early: EarlyPoller) -> None:
    early.pause(3)
    announce(simulator)
    early.pause(3)
    first, second = early.documents
    assert first.api_version == second.api_version == "2024-07-09"
    assert first.at < second.at


def test_waiting_documents_are_bounded_and_include_the_newest(simulator: RunningSimulator, early: EarlyPoller) -> None:
    simulator.fault("web-vm1", "status-503", count=2)
    early.pause(2)
    assert early.documents == [], "a missing answer is no document"
    for _ in range(MAX_DOCUMENTS + 3):
        simulator.fault("web-vm1", "incarnation-jump")
        early.pause(1)
    assert len(early.documents) == MAX_DOCUMENTS
    numbers = [json.loads(document.body)["DocumentIncarnation"] for document in early.documents]
    assert numbers == sorted(numbers) and numbers[-1] - numbers[-2] > numbers[1] - numbers[0]


def test_what_was_read_before_is_the_first_that_is_forwarded_with_its_own_times(parts: Parts) -> None:
    body = b'{"DocumentIncarnation": 7, "Events": []}'
    at = parts.clock.now()
    parts.clock.advance(30)
    parts.poller.add_early_documents([EarlyDocument(body, at, "2019-08-01")])
    assert parts.poller.last_poll_at == at
    parts.poller.step()
    first, _ = parts.waiting(wire.DOCUMENT)
    assert (first["incarnation"], first["api_version"]) == (7, "2019-08-01")


@contextmanager
def dribbling() -> Iterator[str]:
    """A service whose answer comes byte by byte and never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.02):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(10)


def test_a_request_that_is_alone_does_not_wait(clock: SteppedClock) -> None:
    rate_limit, begun = RateLimit(clock), time.monotonic()
    for _ in range(100):
        rate_limit.wait()
        clock.advance(1 / MAX_PER_SECOND + 0.001)
    # One wait of a third of a second each time would be half a minute.
    assert time.monotonic() - begun < 5


@pytest.mark.real_time
@pytest.mark.flow
def test_burst_of_approvals_with_polls_stays_below_the_limit(tmp_path: Path, fleet: FleetDouble) -> None:
    with RunningSimulator(FLEET, most_a_second=5) as simulator, ExitStack() as stack:
        agents = Agents(tmp_path, simulator, fleet)
        stack.callback(agents.end)
        events = [agents.announce() for _ in range(7)]
        agents.at_work()
        agents.reported(*events)
        for number, event_id in enumerate(events):
            fleet.order(VM_IDS["web-vm1"], event_id, order_id=f"order-{number}")
        eventually(lambda: len(simulator.log(vm="web-vm1", method="POST")) == 7)
        entries = simulator.log(vm="web-vm1")
        assert {entry["status"] for entry in entries if entry["method"] == "POST"} == {200}
        assert 429 not in {entry["status"] for entry in entries}
        times = [datetime.fromisoformat(entry["time"]).timestamp() for entry in entries]
        # As they arrive, which is not quite as they were sent.
        assert all(later - first > 0.6 for first, later in zip(times, times[MAX_PER_SECOND:], strict=False))


def test_an_answer_that_never_ends_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drydock_agent.metadata_service.client.WHOLE_SECONDS", 0.3)
    monkeypatch.setattr("drydock_agent.metadata_service.client.READ_SECONDS", 0.2)
    with dribbling() as url:
        imds = Imds(url)
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.1):
                imds.cut_if_overdue()

        watcher = threading.Thread(target=watch)
        watcher.start()
        begun = time.monotonic()
        with pytest.raises(MetadataUnavailable, match="does not answer"):
            imds.scheduled_events()
        assert 0.4 < time.monotonic() - begun < 5
        stop.set()
        watcher.join(10)
        imds.close()


def test_after_a_day_of_sleep_the_service_gets_time_to_restart(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drydock_agent.metadata_service.client.READ_SECONDS", 0.2)
    parts.polls(1)
    parts.fault("slow", count=2, delay_seconds=1)
    parts.poller.step()
    assert parts.poller.last_poll_at != parts.clock.now(), "in the middle of the day a second is too long here"
    parts.clock.advance(SWITCHED_OFF_SECONDS + 1)
    parts.poller.step()
    assert parts.poller.last_poll_at == parts.clock.now()
