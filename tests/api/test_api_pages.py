"""API lists: their pages stay consistent while rows arrive, and each costs a fixed number of queries."""

from typing import Any

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
