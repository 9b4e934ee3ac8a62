"""Committer: the size of commits, the pause after each, and the little time that failing machines get."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.db import OperationalError
from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from fleet.domain.intake import read_document
from fleet.gateway import committer as writing
from fleet.gateway.committer import GATHERING, LEAST_REPORTS, Committer, most_after, pause_after
from fleet.gateway.decoder import read_batch
from fleet.gateway.http import Problem
from fleet.gateway.write_queue import SHARES, Lane, lane_of
from fleet.operations.intake.keep import Delivery, ParsedReport, body_of
from fleet.operations.intake.spools import Key, Taken
from tests.loops import in_a_loop


@pytest.mark.parametrize(
    ("deliveries", "waiting", "took", "pause"),
    [
        (1, 0, 5.0, 0.0),
        (GATHERING - 1, 0, 5.0, 0.0),
        (GATHERING, 0, 0.001, writing.GATHER_SECONDS),
        (GATHERING, 0, 0.1, 0.1),
        (GATHERING, 0, 5.0, writing.GATHER_SLOW_SECONDS),
        (GATHERING, GATHERING, 5.0, 0.0),
    ],
)
def test_it_waits_as_long_as_it_took_and_not_where_others_wait(
    deliveries: int, waiting: int, took: float, pause: float
) -> None:
    assert pause_after(deliveries, waiting, took=took) == pause


@given(reports=st.integers(1, 5_000), took=st.floats(0.002, 60))
def test_the_next_commit_takes_up_what_this_one_would_have_written_in_a_second(reports: int, took: float) -> None:
    most = most_after(reports, took=took, limit=2_500)
    assert LEAST_REPORTS <= most <= 2_500
    if LEAST_REPORTS < most < 2_500:
        assert abs(most * took / reports - writing.COMMIT_SECONDS) <= took / reports


@in_a_loop
async def test_database_outage_does_not_enlarge_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: Any) -> None:
        raise OperationalError("no connection")

    monkeypatch.setattr(writing.reporting, "record", away)
    committer = Committer(asyncio.get_running_loop())
    committer._most = 2_500
    committer.loop.start()
    calls = [committer.commit(Delivery(machine_id=number, spool="s", reports=[]), 1) for number in range(400)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    committer.loop.stop()
    # The answers are there a moment before it is said how large the next one is.
    await asyncio.to_thread(committer.loop.join)
    assert {type(answer) for answer in answers} == {Problem}
    assert committer._most == LEAST_REPORTS


NOW = datetime.now(UTC)

BAD = 13


def delivery(machine_id: int, data: Any = None, *, reports: int = 1, at: datetime = NOW) -> Delivery:
    kept = [ParsedReport(number + 1, "weather", at, at, data or {}) for number in range(reports)]
    return Delivery(machine_id=machine_id, spool="s", reports=kept)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database that takes 5 ms for each try, and refuses every report of one machine."""

    def record(*, deliveries: Sequence[Delivery], now: datetime, careful: bool = False) -> dict[Key, Taken]:
        time.sleep(0.005)
        if any(one.machine_id == BAD and any(not report.flag for report in one.reports) for one in deliveries):
            raise ValueError("no such luck")
        return {one.key: Taken(max(one.numbers, default=0), before=0) for one in deliveries}

    monkeypatch.setattr(writing.reporting, "record", record)
    monkeypatch.setattr(writing.queue, "waited_for", set)
    monkeypatch.setattr(writing.clock, "measure", lambda: None)
    yield


@in_a_loop
async def test_the_others_are_answered_while_one_machine_brings_what_cannot_be_stored(database: None) -> None:
    committer = Committer(asyncio.get_running_loop())
    committer.loop.start()
    slowest, acknowledged = [], 0

    async def trouble() -> None:
        nonlocal acknowledged
        while True:
            written = await committer.commit(delivery(BAD, reports=500), 1000)
            acknowledged += written.acknowledged

    bad = asyncio.ensure_future(trouble())
    await asyncio.sleep(0.1)
    ends = time.monotonic() + 3
    # New machines each time: a machine that reports this much is expensive.
    first = 0
    while time.monotonic() < ends:
        began, first = time.monotonic(), first + 20
        await asyncio.gather(*(committer.commit(delivery(number), 100) for number in range(first, first + 20)))
        slowest.append(time.monotonic() - began)
    bad.cancel()
    committer.loop.stop()
    assert max(slowest) < 1
    assert sorted(slowest)[len(slowest) // 2] < 0.1
    assert len(slowest) > 20
    assert acknowledged > 0, "its other reports are stored, too"


@in_a_loop
async def test_it_takes_no_turn_before_those_that_cost_much(database: None) -> None:
    committer = Committer(asyncio.get_running_loop())
    order: list[int] = []

    async def bring(machine_id: int) -> None:
        await committer.commit(delivery(machine_id, reports=40), 1000)
        order.append(machine_id)

    committer.lanes.trouble(BAD)
    waiting = asyncio.gather(*(bring(machine_id) for machine_id in (BAD, 20, 21, 22)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    committer._salvaged = time.monotonic()
    committer.loop.start()
    await waiting
    committer.loop.stop()
    assert order == [20, 21, 22, BAD]


def test_receipts_and_started_come_before_documents_and_history() -> None:
    body = '{"Events": [{"EventStatus": "started"}]}'
    started = wire.DocumentData(body=body, hash="", incarnation=1, api_version="")
    quiet = wire.DocumentData(body="{}", hash="", incarnation=1, api_version="")
    receipt = wire.ReceiptData(order_id="", event_id="", outcome="answered")
    old = NOW - timedelta(minutes=5)
    assert lane_of(delivery(1, receipt, at=old), NOW) is Lane.RECEIPTS
    assert lane_of(delivery(1, started), NOW) is Lane.STARTED
    assert lane_of(delivery(1, quiet), NOW) is Lane.DOCUMENTS
    assert lane_of(delivery(1, started, at=old), NOW) is Lane.CATCHING_UP
    assert list(SHARES) == list(Lane)
    assert sorted(SHARES.values(), reverse=True) == list(SHARES.values())


@in_a_loop
async def test_under_pressure_lanes_are_shed_from_the_end(settings: Settings) -> None:
    settings.INGEST_QUEUE_REPORTS = 100
    receipt = wire.ReceiptData(order_id="", event_id="", outcome="answered")
    committer = Committer(asyncio.get_running_loop())
    waiting = [asyncio.ensure_future(committer.commit(delivery(number), 1)) for number in range(60)]
    await asyncio.sleep(0)
    with pytest.raises(Problem):
        await committer.commit(delivery(100, at=NOW - timedelta(hours=1)), 1)
    waiting += [asyncio.ensure_future(committer.commit(delivery(number), 1)) for number in range(60, 80)]
    await asyncio.sleep(0)
    with pytest.raises(Problem):
        await committer.commit(delivery(101), 1)
    waiting.append(asyncio.ensure_future(committer.commit(delivery(102, receipt), 1)))
    await asyncio.sleep(0)
    first = committer.lanes.take(10)
    for one in waiting:
        one.cancel()
    assert 102 in [pending.delivery.machine_id for pending in first]


AT = json.dumps(NOW.isoformat())

REPORT = '{"seq": SEQ, "kind": "weather", "at": AT, "data": DATA}'.replace('"at": AT', f'"at": {AT}')

DEEP = "[" * 60 + "1" + "]" * 60


@pytest.mark.parametrize("value", ["NaN", "[Infinity]", "1e999", "1" + "0" * 30, DEEP])
def test_what_no_column_keeps_is_refused_where_it_is_decoded(value: str) -> None:
    bad = REPORT.replace("SEQ", "1").replace("DATA", f'{{"a": {value}}}')
    good = REPORT.replace("SEQ", "2").replace("DATA", '{"a": "\\ud800"}')
    raw = f'{{"spool": "s", "agent_version": "1", "sent_at": {AT}, "reports": [{bad}, {good}]}}'
    batch = read_batch(raw.encode(), received_at=NOW)
    assert [seq for seq, _ in batch.refused] == [1]
    assert [one.data for one in batch.reports] == [{"a": "\N{REPLACEMENT CHARACTER}"}]


def test_a_document_that_is_too_long_is_kept_cut_and_is_no_document() -> None:
    body = '{"Events": [' + " " * wire.MAX_DOCUMENT_BYTES + "]}"
    data = json.dumps({"body": body, "hash": sha256(body.encode()).hexdigest(), "incarnation": 7})
    report = f'{{"seq": 1, "kind": "document", "at": {AT}, "data": {data}}}'
    raw = f'{{"spool": "s", "agent_version": "1", "sent_at": {AT}, "reports": [{report}]}}'
    (kept,) = read_batch(raw.encode(), received_at=NOW).reports
    assert body_of(kept.data) == body.encode()[: wire.MAX_DOCUMENT_BYTES]
    found = read_document(body_of(kept.data))
    assert (found.readable, [flag.code for flag in found.flags]) == (False, ["body-cut"])
