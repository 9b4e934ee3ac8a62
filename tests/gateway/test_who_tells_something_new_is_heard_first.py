"""Report order in a storm: the first report of an event is written before repetitions by other machines."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from drydock_agent import wire
from hypothesis import given
from hypothesis import strategies as st

from fleet.gateway.limits import GatewayLimits
from fleet.gateway.write_queue import LANE_REMEMBERED, LOOKED_AT, MOST_NAMED, Lanes, Pending, events_in
from fleet.operations.intake.keep import Delivery, ParsedReport
from tests.loops import in_a_loop

NOW = datetime.now(UTC)


def telling(machine_id: int, *event_ids: str, status: str = "Scheduled", at: datetime = NOW) -> Delivery:
    events = [{"EventId": event_id, "EventStatus": status} for event_id in event_ids]
    body = json.dumps({"DocumentIncarnation": machine_id, "Events": events})
    data = wire.DocumentData(body=body, hash="", incarnation=1, api_version="")
    return Delivery(machine_id=machine_id, spool="s", reports=[ParsedReport(1, wire.DOCUMENT, at, at, data)])


def order_of(*deliveries: Delivery, most: int = 1000, limits: GatewayLimits | None = None) -> list[int]:
    """The machines in the order in which these deliveries are taken up, `most` at a time."""

    async def play() -> list[int]:
        lanes = Lanes(limits or GatewayLimits())
        for one in deliveries:
            lanes.put(Pending(one, 1, 1, 0.0, asyncio.get_running_loop().create_future()), NOW)
        found: list[int] = []
        while batch := lanes.take(most):
            found += [pending.delivery.machine_id for pending in batch]
        return found

    return in_a_loop(play())


def test_the_first_word_of_an_event_passes_those_who_repeat_another() -> None:
    said = [telling(number, "A") for number in range(10)]
    assert order_of(*said, telling(50, "B"), telling(51, "B"), most=1) == [0, 50, *range(1, 10), 51]


def test_what_is_more_urgent_still_comes_first() -> None:
    started, old = telling(2, "B", status="Started"), telling(3, "C", at=NOW - timedelta(hours=1))
    assert order_of(telling(1, "A"), started, old, most=1) == [2, 1, 3]
    # The first report of a started event also covers the event itself.
    later = [telling(number, event_id) for number, event_id in ((5, "A"), (6, "B"), (7, "A"), (8, "D"))]
    assert order_of(started, *later, most=1) == [2, 5, 8, 6, 7]


def test_a_document_that_lists_nothing_is_no_news() -> None:
    assert order_of(telling(1), telling(2, "A"), most=1) == [2, 1]


def test_what_was_refused_for_want_of_room_is_news_when_it_comes_again() -> None:
    limits = GatewayLimits(queue_reports=1)

    async def play() -> list[bool]:
        lanes = Lanes(limits)

        def put(one: Delivery) -> bool:
            return lanes.put(Pending(one, 1, 1, 0.0, asyncio.get_running_loop().create_future()), NOW)

        first, second = put(telling(1, "A")), put(telling(2, "B"))
        lanes.done(lanes.take(10), behind=set())
        return [first, second, "B" in lanes._told, put(telling(2, "B")), "B" in lanes._told]

    assert in_a_loop(play()) == [True, False, False, True, True]


def test_a_word_that_has_to_wait_takes_nothing_from_the_first_that_does_not() -> None:
    old = telling(1, "A", at=NOW - timedelta(hours=1))
    assert order_of(old, telling(2, "B"), telling(3, "B"), telling(4, "A"), most=1) == [2, 4, 3, 1]


def test_one_machine_that_makes_up_events_gets_no_more_than_its_turn() -> None:
    made_up = [telling(1, *(f"{number}-{event}" for event in range(200))) for number in range(5)]
    assert len(events_in(made_up[0])) == MOST_NAMED
    # What costs so much is not in the commits of the others at all.
    others = [telling(number, "A") for number in range(10, 20)]
    assert order_of(*made_up, *others) == [*range(10, 20)]


def test_of_an_endless_document_no_more_than_the_beginning_is_looked_at() -> None:
    body = " " * LOOKED_AT + '{"EventId": "A"}'
    data = wire.DocumentData(body=body, hash="", incarnation=1, api_version="")
    late = Delivery(machine_id=1, spool="s", reports=[ParsedReport(1, wire.DOCUMENT, NOW, NOW, data)])
    assert events_in(late) == []
    assert events_in(telling(1, "A")) == ["A"]


def test_so_many_are_remembered_and_no_more() -> None:
    async def play() -> tuple[int, bool, bool]:
        lanes = Lanes(GatewayLimits(queue_reports=10 * LANE_REMEMBERED))
        for number in range(LANE_REMEMBERED // 10 + 1):
            one = telling(number, *(f"{number}-{event}" for event in range(10)))
            lanes.put(Pending(one, 1, 1, 0.0, asyncio.get_running_loop().create_future()), NOW)
        return len(lanes._told), "0-0" in lanes._told, f"{LANE_REMEMBERED // 10}-9" in lanes._told

    assert in_a_loop(play()) == (LANE_REMEMBERED, False, True)


@given(text=st.text(max_size=200))
def test_whatever_a_document_holds_its_events_are_looked_for_without_failing(text: str) -> None:
    data = wire.DocumentData(body=f'{{"Events": [{{"EventId": "{text}"}}]}}', hash="", incarnation=1, api_version="")
    one = Delivery(machine_id=1, spool="s", reports=[ParsedReport(1, wire.DOCUMENT, NOW, NOW, data)])
    assert all(len(event_id) <= 64 for event_id in events_in(one))
