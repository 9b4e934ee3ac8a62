"""Write queue: whose reports share a commit, which are taken up first, and what waits behind the others."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from fleet.gateway import committer as writing
from fleet.gateway import write_queue
from fleet.gateway.committer import Committer
from fleet.gateway.write_queue import COSTLY, LOOKED_AT, Lane, Lanes, Pending, Spending, cost_of, events_in, parts_of
from fleet.operations.intake.keep import Delivery, ParsedReport
from fleet.operations.intake.spools import Key, Taken
from fleet.projections.machines import identities_of
from tests.factories import Fleet
from tests.loops import in_a_loop

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(hours=1)

# What a machine says: its number, its set, and how far its spool has counted.
SAID = tuple[int, int | None, int]


def bringing(machine_id: int, body: str, *, at: datetime = NOW, seq: int = 1) -> Delivery:
    """A document with this body."""
    data = wire.DocumentData(body=body, hash="", incarnation=1, api_version="")
    return Delivery(machine_id=machine_id, spool="s", reports=[ParsedReport(seq, wire.DOCUMENT, at, at, data)])


def pending(delivery: Delivery, set_id: int | None = None) -> Pending:
    return Pending(delivery, 1, 1, 0.0, asyncio.get_running_loop().create_future(), set_id)


@in_a_loop
async def batches_of(*said: SAID, most: int, trouble: int | None = None) -> list[list[SAID]]:
    """Return the batches that the lanes form of these reports, put in this order."""
    lanes = Lanes()
    if trouble is not None:
        lanes.trouble(trouble)
    for machine_id, set_id, seq in said:
        lanes.put(pending(bringing(machine_id, f'{{"DocumentIncarnation": {seq}}}', seq=seq), set_id), NOW)
    found = []
    while batch := lanes.take(most) or lanes.take_one(Lane.TROUBLED):
        found.append([(one.delivery.machine_id, one.set_id, one.delivery.reports[0].seq) for one in batch])
        lanes.done(batch, behind=set())
    assert (lanes.waiting(), lanes.since(1.0), lanes._reports, lanes._bytes) == (0, [], 0, 0)
    return found


def test_machines_of_a_set_are_taken_up_together_and_sets_take_turns() -> None:
    said: list[SAID] = [(number, number % 2, 1) for number in range(8)]
    assert batches_of(*said, most=4) == [said[::2], said[1::2]]
    large, small = [(number, 1, 1) for number in range(9)], (50, 2, 1)
    assert [small in batch for batch in batches_of(*large, small, most=3)] == [False, True, False, False]
    # Machines without a set keep their order, and a failing one does not delay its set.
    said = [(number, None, 1) for number in range(4)]
    assert batches_of(*said, most=2) == [said[:2], said[2:]]
    assert batches_of((1, 7, 1), (2, 7, 1), most=1, trouble=1) == [[(2, 7, 1)], [(1, 7, 1)]]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=40), st.integers(1, 10), st.integers(1, 6))
def test_whatever_comes_is_taken_up_once_and_each_machine_in_its_order(
    calls: list[tuple[int, int]], most: int, trouble: int
) -> None:
    said: list[SAID] = [(machine, home or None, seq) for seq, (machine, home) in enumerate(calls, start=1)]
    # Machines stay where they are, as far as their process knows.
    homes = {machine: home for machine, home, _ in reversed(said)}
    said = [(machine, homes[machine], seq) for machine, _, seq in said]
    found = batches_of(*said, most=most, trouble=trouble)
    assert sorted(one for batch in found for one in batch) == sorted(said)
    seen: dict[int, list[int]] = defaultdict(list)
    for batch in found:
        assert len({machine for machine, *_ in batch}) == len(batch) <= most
        for machine, _, seq in batch:
            seen[machine].append(seq)
    assert all(seqs == sorted(seqs) for seqs in seen.values())


@pytest.mark.django_db
def test_credential_identifies_the_machine_with_its_set() -> None:
    machine = Fleet().enrol("vm1").machine
    found = identities_of(hashes=[machine.credential_hash])
    assert [one.set_id for one in found.values()] == [machine.availability_set_id]


def telling(machine_id: int, *event_ids: str, status: str = "Scheduled", at: datetime = NOW) -> Delivery:
    events = [{"EventId": event_id, "EventStatus": status} for event_id in event_ids]
    return bringing(machine_id, json.dumps({"DocumentIncarnation": machine_id, "Events": events}), at=at)


@in_a_loop
async def order_of(*deliveries: Delivery) -> list[int]:
    """The machines in the order in which these deliveries are taken up, one at a time."""
    lanes = Lanes()
    for one in deliveries:
        lanes.put(pending(one), NOW)
    found: list[int] = []
    while batch := lanes.take(1):
        found += [one.delivery.machine_id for one in batch]
    return found


def test_the_first_word_of_an_event_passes_those_who_repeat_another_or_list_nothing() -> None:
    said = [telling(number, "A") for number in range(10)]
    assert order_of(*said, telling(50, "B"), telling(51, "B")) == [0, 50, *range(1, 10), 51]
    assert order_of(telling(1), telling(2, "A")) == [2, 1]
    started, old = telling(2, "B", status="Started"), telling(3, "C", at=LONG_AGO)
    assert order_of(telling(1, "A"), started, old) == [2, 1, 3]
    # The first report of a started event also covers the event itself; one that has to wait covers nothing.
    later = [telling(number, event_id) for number, event_id in ((5, "A"), (6, "B"), (7, "A"), (8, "D"))]
    assert order_of(started, *later) == [2, 5, 8, 6, 7]
    assert order_of(telling(1, "A", at=LONG_AGO), telling(2, "B"), telling(3, "B"), telling(4, "A")) == [2, 4, 3, 1]


@in_a_loop
async def test_what_was_refused_for_want_of_room_is_news_when_it_comes_again(settings: Settings) -> None:
    settings.INGEST_QUEUE_REPORTS = 1
    lanes = Lanes()
    assert lanes.put(pending(telling(1, "A")), NOW)
    assert not lanes.put(pending(telling(2, "B")), NOW) and "B" not in lanes._told
    lanes.done(lanes.take(10), behind=set())
    assert lanes.put(pending(telling(2, "B")), NOW) and "B" in lanes._told


def test_one_machine_that_makes_up_events_gets_no_more_than_its_turn() -> None:
    made_up = [telling(1, *(f"{number}-{event}" for event in range(200))) for number in range(5)]
    assert len(events_in(made_up[0])) == write_queue.MOST_NAMED
    # What costs so much is not in the commits of the others at all.
    others = [telling(number, "A") for number in range(10, 20)]
    assert order_of(*made_up, *others) == [*range(10, 20)]


def test_of_an_endless_document_no_more_than_the_beginning_is_looked_at() -> None:
    assert events_in(bringing(1, " " * LOOKED_AT + '{"EventId": "A"}')) == []
    assert events_in(telling(1, "A")) == ["A"]


@in_a_loop
async def test_so_many_are_remembered_and_no_more(settings: Settings) -> None:
    settings.INGEST_QUEUE_REPORTS = 10 * write_queue.LANE_REMEMBERED
    lanes = Lanes()
    for number in range(write_queue.LANE_REMEMBERED // 10 + 1):
        lanes.put(pending(telling(number, *(f"{number}-{event}" for event in range(10)))), NOW)
    assert len(lanes._told) == write_queue.LANE_REMEMBERED
    assert "0-0" not in lanes._told and f"{write_queue.LANE_REMEMBERED // 10}-9" in lanes._told


@given(text=st.text(max_size=200))
def test_whatever_a_document_holds_its_events_are_looked_for_without_failing(text: str) -> None:
    delivery = bringing(1, f'{{"Events": [{{"EventId": "{text}"}}]}}')
    assert all(len(event_id) <= 64 for event_id in events_in(delivery))


LOUD = 7


def document(events: int) -> wire.DocumentData:
    return wire.DocumentData(body='{"Events": [' + '{"EventId": "x"},' * events + "]}", hash="", incarnation=1)


def delivery(machine_id: int, *data: Any, refused: Sequence[tuple[int, str]] = ()) -> Delivery:
    reports = [ParsedReport(number, "weather", NOW, NOW, one) for number, one in enumerate(data, 1)]
    return Delivery(machine_id=machine_id, spool="s", reports=reports, refused=refused)


STATEMENT = wire.InstanceData(compute={}, resource_name="x")

ATTACKS = {
    "a document of many events": [document(2000)],
    "many statements": [STATEMENT] * 200,
    "many documents": [document(500)] * 20,
    "many caches": [wire.CoverageData(cache=f"c{number}", state="lost") for number in range(200)],
    "reminders of many bodies": [wire.ReminderData(hash=f"{number:064}") for number in range(50)],
    "bytes that are no text": [wire.DocumentData(body="A" * 500_000, hash="", encoding="base64")],
    "a receipt as a passport": [wire.ReceiptData(order_id="", event_id="", outcome="answered"), *[STATEMENT] * 199],
}


@pytest.mark.parametrize("data", ATTACKS.values(), ids=list(ATTACKS))
def test_what_costs_much_waits_behind_the_others(data: list[Any]) -> None:
    lanes = Lanes()
    future: Any = type("Open", (), {"done": lambda self: False})()
    assert lanes.put(Pending(delivery(LOUD, *data), 100, len(data), 0.0, future), NOW)
    assert lanes.put(Pending(delivery(8, document(1)), 100, 1, 0.0, future), NOW)
    assert [one.delivery.machine_id for one in lanes.take(1000)] == [8]
    assert lanes.take(1000) == []
    assert [one.delivery.machine_id for one in lanes.take_one(Lane.COSTLY)] == [LOUD]


def test_what_machines_say_every_day_does_not() -> None:
    starts = [
        STATEMENT,
        document(2),
        *(wire.CoverageData(cache=f"c{number}", state="subscribed") for number in range(4)),
    ]
    receipt = wire.ReceiptData(order_id="", event_id="", outcome="answered")
    reminders = [wire.ReminderData(hash="a" * 64)] * 200
    for day in (starts, [document(0)] * 200, [document(3), receipt], reminders):
        assert not Spending().is_costly(delivery(1, *day))


def test_a_machine_that_sends_little_without_end_is_judged_by_all_of_it() -> None:
    spending = Spending()
    judged = [spending.is_costly(delivery(LOUD, document(20))) for _ in range(20)]
    assert (judged[0], judged[-1]) == (False, True)
    assert not spending.is_costly(delivery(8, document(20)))


def test_parts_are_in_order_and_hold_everything_once() -> None:
    whole = delivery(LOUD, *[STATEMENT] * 10, document(500), *[document(1)] * 100, refused=[(500, "no"), (501, "no")])
    parts = list(parts_of(whole, COSTLY))
    numbers = [number for part in parts for number in part.numbers]
    assert numbers == sorted(whole.numbers)
    assert all(sum(map(cost_of, part.reports)) <= COSTLY or len(part.reports) == 1 for part in parts)
    assert len(parts) > 5


@in_a_loop
async def test_others_are_committed_without_the_costly_one_and_it_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits: list[list[tuple[int, int]]] = []

    def record(*, deliveries: Sequence[Delivery], now: datetime, careful: bool = False) -> dict[Key, Taken]:
        commits.append([(one.machine_id, len(one.reports)) for one in deliveries])
        return {one.key: Taken(max(one.numbers, default=0), before=0) for one in deliveries}

    monkeypatch.setattr(writing.reporting, "record", record)
    monkeypatch.setattr(writing.queue, "waited_for", set)
    monkeypatch.setattr(writing.clock, "is_clock_correct", lambda: True)
    monkeypatch.setattr(writing.clock, "now", lambda: NOW)

    committer = Committer(asyncio.get_running_loop())
    waiting = [asyncio.ensure_future(committer.commit(delivery(LOUD, *[STATEMENT] * 30), 100))]
    waiting += [asyncio.ensure_future(committer.commit(delivery(number, document(1)), 100)) for number in (8, 9)]
    await asyncio.sleep(0)
    committer.loop.start()
    try:
        written = await asyncio.wait_for(asyncio.gather(*waiting), 20)
    finally:
        committer.loop.stop()
    assert commits[0] == [(8, 1), (9, 1)]
    assert all(len(batch) == 1 and batch[0][1] <= COSTLY // 10 for batch in commits[1:])
    # What was not written in the time comes again: a part of it, never none.
    assert 0 < written[0].acknowledged <= 30
    assert sum(count for batch in commits[1:] for _, count in batch) == written[0].acknowledged
