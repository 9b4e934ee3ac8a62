"""Deliveries that cost the writer much are written in parts, behind the others, and never in their commits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from drydock_agent import wire

from fleet.gateway import committer as writing
from fleet.gateway.committer import Committer
from fleet.gateway.limits import GatewayLimits
from fleet.gateway.write_queue import COSTLY, Lanes, Pending, Spending, Written, cost_of, parts_of
from fleet.operations.intake.keep import Delivery, ParsedReport
from fleet.operations.intake.spools import Key, Taken
from tests.loops import in_a_loop

NOW = datetime.now(UTC)
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
    "a receipt as a passport": [
        wire.ReceiptData(order_id="", event_id="", outcome="answered"),
        *[STATEMENT] * 199,
    ],
}


@pytest.mark.parametrize("data", ATTACKS.values(), ids=list(ATTACKS))
def test_what_costs_much_waits_behind_the_others(data: list[Any]) -> None:
    lanes = Lanes(GatewayLimits())
    future: Any = type("Open", (), {"done": lambda self: False})()
    assert lanes.put(Pending(delivery(LOUD, *data), 100, len(data), 0.0, future), NOW)
    assert lanes.put(Pending(delivery(8, document(1)), 100, 1, 0.0, future), NOW)
    assert [one.delivery.machine_id for one in lanes.take(1000)] == [8]
    assert lanes.take(1000) == []
    assert [one.delivery.machine_id for one in lanes.take_costly()] == [LOUD]


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
    parts = list(parts_of(whole))
    numbers = [number for part in parts for number in part.numbers]
    assert numbers == sorted(whole.numbers)
    assert all(sum(map(cost_of, part.reports)) <= COSTLY or len(part.reports) == 1 for part in parts)
    assert len(parts) > 5


def test_others_are_committed_without_the_costly_one_and_it_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[list[tuple[int, int]]] = []

    def record(*, deliveries: Sequence[Delivery], now: datetime, careful: bool = False) -> dict[Key, Taken]:
        commits.append([(one.machine_id, len(one.reports)) for one in deliveries])
        return {one.key: Taken(max(one.numbers, default=0), before=0) for one in deliveries}

    monkeypatch.setattr(writing.record, "record", record)
    monkeypatch.setattr(writing.queue, "waited_for", set)
    monkeypatch.setattr(writing.clock, "is_clock_correct", lambda: True)
    monkeypatch.setattr(writing.clock, "now", lambda: NOW)

    async def play() -> list[Written]:
        committer = Committer(GatewayLimits(), asyncio.get_running_loop())
        waiting = [asyncio.ensure_future(committer.commit(delivery(LOUD, *[STATEMENT] * 30), 100))]
        waiting += [asyncio.ensure_future(committer.commit(delivery(number, document(1)), 100)) for number in (8, 9)]
        await asyncio.sleep(0)
        committer.loop.start()
        try:
            return await asyncio.wait_for(asyncio.gather(*waiting), 20)
        finally:
            committer.loop.stop()

    written = in_a_loop(play())
    assert commits[0] == [(8, 1), (9, 1)]
    assert all(len(batch) == 1 and batch[0][1] <= COSTLY // 10 for batch in commits[1:])
    # What was not written in the time comes again: a part of it, never none.
    assert 0 < written[0].acknowledged <= 30
    assert sum(count for batch in commits[1:] for _, count in batch) == written[0].acknowledged
