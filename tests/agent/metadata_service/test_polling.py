"""The poller against the simulator: what is forwarded, and what odd answers do."""

from __future__ import annotations

import json
import logging
import os
import resource
from datetime import timedelta

import pytest
from azure_simulator.child_process import RunningSimulator
from drydock_agent import wire
from drydock_agent.metadata_service.client import LIMIT, Imds
from drydock_agent.metadata_service.scheduled_events import ScheduledEvents

from tests.agent.agents import VM_IDS, PartsFactory, SteppedClock


def test_a_document_is_forwarded_when_it_changes_and_not_otherwise(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    made = parts()
    for _ in range(3):
        made.poller.step()
        clock.advance(1)
    event_id = simulator.events.create(set="web", type="Reboot", resources=["web-vm1"], notice_seconds=600)
    for _ in range(3):
        made.poller.step()
        clock.advance(1)
    first, second = made.waiting(wire.DOCUMENT)
    assert first["incarnation"] is not None and second["incarnation"] > first["incarnation"]
    assert json.loads(second["body"])["Events"][0]["EventId"] == event_id
    assert second["api_version"] == "2024-07-09"
    assert made.poller.listed(event_id.lower()) == event_id


def test_a_changed_incarnation_alone_is_forwarded(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock
) -> None:
    made = parts()
    made.poller.step()
    simulator.fault("web-vm1", "incarnation-jump")
    clock.advance(1)
    made.poller.step()
    first, second = made.waiting(wire.DOCUMENT)
    assert second["incarnation"] > first["incarnation"]
    assert json.loads(second["body"])["Events"] == json.loads(first["body"])["Events"]


def test_an_unchanged_document_is_reminded_of(parts: PartsFactory, clock: SteppedClock) -> None:
    made = parts(reminder_seconds=300)
    for _ in range(10):
        made.poller.step()
        clock.advance(100)
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
    for _ in pages:
        made.poller.step()
        clock.advance(1)
    assert [len(data["body"]) for data in made.waiting(wire.DOCUMENT)] == [6] * 5 + [LIMIT] * 3
    assert made.poller.last_poll_at is None
    clock.advance(3600)
    made.poller.step()
    assert made.waiting(wire.DOCUMENT)[-1]["body"] == "an hour later"


def test_after_an_unreadable_answer_the_same_document_is_reported_again(
    parts: PartsFactory, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parts()
    document = b'{"DocumentIncarnation": 1, "Events": []}'
    answers = iter([document, b"a page", document, document])
    monkeypatch.setattr(made.poller._imds, "scheduled_events", lambda first_call: next(answers))
    for _ in range(4):
        made.poller.step()
        clock.advance(1)
    assert [data["body"] for data in made.waiting(wire.DOCUMENT)] == [document.decode(), "a page"]
    assert len(made.waiting(wire.REMINDER)) == 1


def test_the_same_warning_comes_once_an_hour(
    parts: PartsFactory, simulator: RunningSimulator, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = parts(poll_seconds=60.0)
    simulator.fault("web-vm1", "status-503", count=62)
    with caplog.at_level(logging.INFO, "drydock_agent"):
        for _ in range(62):
            made.poller.step()
            clock.advance(60)
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
