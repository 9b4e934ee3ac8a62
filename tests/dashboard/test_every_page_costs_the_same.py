"""A fixed number of queries, whatever the fleet's size."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.models import AvailabilitySet, Entry, ScheduledEvent
from fleet.projections import blind_spots, intake, machines, sets
from fleet.projections.desk import fleet, fleet_map, queue, service
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import event_detail
from fleet.projections.filters import EventFilter, MachineFilter
from fleet.projections.timeline import entries, spans
from fleet.projections.timeline.watch import TimeWindow
from tests import factories


def queries(call: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as caught:
        call()
    return [query["sql"] for query in caught.captured_queries]


def grow(walker: factories.Fleet, number: int) -> None:
    """One more set of three machines with an open, a decided and an ended event each."""
    names = [f"s{number}-{machine}" for machine in range(3)]
    for name in names:
        walker.enrol(name, availability_set=f"set-{number}")
        walker.say(name)
    walker.later(0.1)
    ids = [f"0A1B2C3D-0000-4000-8000-{number:06d}{kind:06d}" for kind in range(3)]
    times = [walker.now + timedelta(minutes=5 + kind) for kind in range(3)]
    listings = [
        factories.listing(event_id, resources=(names[kind],), not_before=times[kind])
        for kind, event_id in enumerate(ids)
    ]
    walker.all_say(*listings, names=names)
    walker.approve(ids[1])
    walker.all_say(*listings[:2], names=names)
    AvailabilitySet.objects.update(service="shop")


@pytest.fixture
def small(fleet: factories.Fleet) -> factories.Fleet:
    grow(fleet, 1)
    return fleet


def costs(client: Client) -> dict[str, int]:
    now = datetime.now(UTC)
    event = ScheduledEvent.objects.order_by("pk")[0]
    machine_id = event.availability_set.machines.order_by("pk")[0].pk
    set_id = event.availability_set_id
    calls: dict[str, Callable[[], Any]] = {
        "queue": lambda: queue.decision_queue(now=now),
        "pulse": lambda: queue.pulse(now=now),
        "overview": lambda: fleet.overview(now=now),
        "cards": lambda: sets.cards(now=now, first=[set_id]),
        "sets": lambda: sets.listing(now=now),
        "set": lambda: sets.detail(set_id=set_id, now=now),
        "machines": lambda: machines.listing(now=now, machines=MachineFilter({"q": "s"}).qs),
        "machine": lambda: machines.detail(machine_id=machine_id, now=now),
        "events": lambda: event_rows.listing(now=now, events=EventFilter({}, now=now).qs, size=100),
        "event": lambda: event_detail(event_id=event.event_id, now=now),
        "documents": lambda: intake.for_event(event_id=event.event_id),
        "fleet map": lambda: fleet_map.fleet_map(now=now),
        "service": lambda: service.detail(service="shop", now=now),
        "spans": lambda: spans.of_set(set_id, TimeWindow(now - timedelta(hours=1), now), now=now),
        "timeline": entries.fleet,
        "story": lambda: entries.for_event(event_id=event.event_id),
        "page /": lambda: client.get("/"),
        "page /fleet/": lambda: client.get("/fleet/"),
        "page /fleet/?as=table": lambda: client.get("/fleet/?as=table"),
        "page /services/": lambda: client.get("/services/shop/"),
        "page /sets/": lambda: client.get("/sets/"),
        "page /sets/N/": lambda: client.get(f"/sets/{set_id}/"),
        "page /machines/": lambda: client.get("/machines/"),
        "page /machines/N/": lambda: client.get(f"/machines/{machine_id}/"),
        "page /history/": lambda: client.get("/history/"),
        "page /events/ID/": lambda: client.get(f"/events/{event.event_id}/"),
        "page /timeline/": lambda: client.get("/timeline/"),
        "blind spots": lambda: blind_spots.overview(now=now),
        "page /blind-spots/": lambda: client.get("/blind-spots/"),
        "page /find/": lambda: client.get("/find/?q=vm"),
        "page /views/": lambda: client.get("/views/"),
        "head": lambda: client.get("/pulse/"),
        "page /audit/": lambda: client.get("/audit/"),
        "page /policy/": lambda: client.get("/policy/"),
        "page /handover/": lambda: client.get(f"/handover/?since={now:%Y-%m-%d}T00:00:00Z&until=2090-01-01T00:00:00Z"),
        "page /reports/": lambda: client.get("/reports/"),
        "page /reports/MONTH/": lambda: client.get(f"/reports/{now:%Y-%m}/"),
        "page /reports/events/ID/": lambda: client.get(f"/reports/events/{event.event_id}/"),
    }
    return {name: len(queries(call)) for name, call in calls.items()}


EXPECTED = {
    # Of which eleven are for what the cards show beside the rows: the facts that guards judge, and the history.
    "queue": 17,
    "pulse": 1,
    "overview": 4,
    "cards": 5,
    "sets": 5,
    "set": 8,
    "machines": 1,
    "machine": 2,
    "events": 5,
    # One more where somebody approved: its orders. Beside what is shown: holds, no-approval windows and the history.
    "event": 13,
    "documents": 4,
    "fleet map": 8,
    "service": 8,
    # Three more where there are caches.
    "spans": 5,
    "timeline": 1,
    "blind spots": 9,
    "story": 1,
}


def test_projections_cost_what_they_say_and_pages_no_more_in_a_larger_fleet(
    small: factories.Fleet, operator: Client
) -> None:
    before = costs(operator)
    assert {name: before[name] for name in EXPECTED} == EXPECTED
    for number in range(2, 6):
        grow(small, number)
    assert costs(operator) == before


def test_lists_neither_count_nor_skip(small: factories.Fleet, operator: Client) -> None:
    for number in range(2, 4):
        grow(small, number)
    now = datetime.now(UTC)
    for call in (
        lambda cursor: event_rows.listing(now=now, cursor=cursor, size=2),
        lambda cursor: machines.listing(now=now, cursor=cursor, size=2),
        lambda cursor: sets.listing(now=now, cursor=cursor, size=1),
        lambda cursor: entries.fleet(cursor=cursor, size=2),
    ):
        first = call(None)
        assert first.next is not None
        for sql in queries(lambda call=call, first=first: call(first.next)):
            assert "OFFSET" not in sql
            assert "COUNT(" not in sql


def test_a_list_can_be_walked_to_its_end_and_back(small: factories.Fleet) -> None:
    for number in range(2, 4):
        grow(small, number)
    everything = Entry.objects.all()
    whole = [row.id for row in entries.fleet(entries=everything, size=500).results]
    assert len(whole) == Entry.objects.count() > 30
    there, cursor = [], None
    pages = []
    while True:
        page = entries.fleet(entries=everything, cursor=cursor, size=7)
        pages.append([row.id for row in page.results])
        there += pages[-1]
        if page.next is None:
            break
        cursor = page.next
    assert there == whole
    back = [pages[-1]]
    while page.previous is not None:
        page = entries.fleet(entries=everything, cursor=page.previous, size=7)
        back.insert(0, [row.id for row in page.results])
    assert back == pages


def test_overviews_leave_out_that_further_machines_have_seen_an_event(small: factories.Fleet) -> None:
    assert Entry.objects.filter(kind="event_sighted").exists()
    kinds = {row.kind for row in entries.fleet(size=500).results}
    assert "event_seen" in kinds
    assert "event_sighted" not in kinds


def test_open_events_come_by_time_left_and_then_ended_ones_newest_first_across_pages(small: factories.Fleet) -> None:
    for number in range(2, 5):
        grow(small, number)
    now = datetime.now(UTC)
    rows, cursor = [], None
    while True:
        page = event_rows.listing(now=now, cursor=cursor, size=3)
        rows += page.results
        if page.next is None:
            break
        cursor = page.next
    assert len(rows) == 12
    still_open = [row for row in rows if row.open]
    ended = [row for row in rows if not row.open]
    assert rows == still_open + ended
    assert len(ended) == 4
    due = [row.not_before for row in still_open if row.not_before]
    assert due == sorted(due)
    assert [row.first_seen_at for row in ended] == sorted((row.first_seen_at for row in ended), reverse=True)
