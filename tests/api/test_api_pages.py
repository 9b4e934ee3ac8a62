"""API lists: their pages stay consistent while rows arrive, and each costs a fixed number of queries."""

from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import factories
from tests.api.conftest import Caller
from tests.rows import MachineFactory


def walk(who: Caller, address: str | None) -> list[list[dict[str, Any]]]:
    """The rows of every page from here on."""
    pages = []
    while address:
        body = who.get(address).json()
        pages.append(body["results"])
        address = body["next"]
    return pages


def ids(pages: list[list[dict[str, Any]]], name: str = "id") -> list[Any]:
    return [row[name] for page in pages for row in page]


def test_addresses_of_pages_are_whole_and_keep_the_filter(viewer: Caller) -> None:
    MachineFactory.create_batch(3, region="westeurope")
    address = viewer.get("machines/?page_size=1&region=WestEurope").json()["next"]
    assert address.startswith("http://testserver/api/v1/machines/?")
    assert "page_size=1" in address
    assert "region=WestEurope" in address
    assert "cursor=" in address


def test_rows_that_arrive_between_two_pages_shift_nothing(viewer: Caller) -> None:
    for number in range(1, 5):
        MachineFactory(resource_name=f"vm{number}")
    first = viewer.get("machines/?page_size=2").json()
    for number in (0, 9):
        MachineFactory(resource_name=f"vm{number}")
    second = viewer.get(first["next"]).json()
    assert [row["resource_name"] for row in [*first["results"], *second["results"]]] == ["vm1", "vm2", "vm3", "vm4"]
    assert [row["resource_name"] for row in viewer.get(second["next"]).json()["results"]] == ["vm9"]


def test_events_go_over_from_open_to_ended_ones(fleet: factories.Fleet, viewer: Caller) -> None:
    fleet.enrol_set(2)
    due = fleet.now + factories.seconds(900)
    for number in range(3):
        fleet.later(1)
        fleet.all_say(factories.listing(f"ENDED{number}", not_before=due))
    fleet.later(1)
    fleet.all_say(*[factories.listing(f"OPEN{number}", not_before=due) for number in range(3)])
    order = ["OPEN0", "OPEN1", "OPEN2", "ENDED2", "ENDED1", "ENDED0"]
    for size in (1, 2, 4, 6):
        assert ids(walk(viewer, f"events/?page_size={size}"), "event_id") == order


# Two are the login: the token with its person, and the person's groups.
QUERIES = {
    "sets/": 7,
    "machines/": 3,
    "events/": 7,
    "events/{event}/": 16,
    "events/{event}/timeline/": 6,
    "events/{event}/documents/": 7,
    # While it is on its way: who is asked next takes what the relay judges by.
    "approvals/{approval}/": 14,
}


def test_the_number_of_queries_does_not_grow(viewer: Caller, db: None) -> None:
    counts: dict[int, dict[str, int]] = {}
    for size in (2, 6):
        fleet = factories.Fleet(now=factories.datetime.now(factories.UTC))
        fleet.enrol_set(size, prefix=f"of{size}-", availability_set=f"set{size}")
        due = fleet.now + factories.seconds(900)
        fleet.all_say(factories.listing(f"EVENT{size}", resources=list(fleet.agents), not_before=due))
        approval = fleet.approve(f"EVENT{size}")
        counts[size] = {}
        for address in QUERIES:
            filled = address.format(event=f"EVENT{size}", approval=approval.pk)
            viewer.get(filled)
            with CaptureQueriesContext(connection) as queries:
                assert viewer.get(filled).status_code == 200
            counts[size][address] = len(queries)
    assert counts[2] == counts[6]
    assert {address: count for address, count in counts[6].items() if count > QUERIES[address]} == {}
