"""API details: each field of a detail equals the same field of the row in the list."""

import re
from typing import Any

import pytest

from fleet.urls import CALLS
from tests import factories
from tests.access.world import CLAIMED, world
from tests.api.conftest import caller
from tests.factories import listing

pytestmark = pytest.mark.django_db
# Counted to the moment of each answer.
CLOCKS = {"server_time", "seconds_left", "started_seconds"}
# By itself it says what exactly it waits for and who is asked next: a list does not load the facts of all events.
EXACT = {"waits_for", "next_asked"}
# Details that contain the row as one of several fields.
INSIDE = ("drill",)


def pairs() -> list[tuple[str, str]]:
    """The address of each list whose rows have one of their own, and by which field that goes."""
    found = []
    addresses = {str(route.pattern): route.callback.view_class for route in CALLS}  # type: ignore[attr-defined]
    for address, view in addresses.items():
        place = re.fullmatch(r"(.*)<\w+:(\w+)>/", address)
        if place and hasattr(view, "get") and hasattr(addresses.get(place[1]), "get"):
            name = place[2]
            found.append((place[1].removeprefix("v1/"), name if name in ("event_id", "username", "prefix") else "id"))
    return found


def still(value: Any) -> Any:
    """The value without what counts from now."""
    if isinstance(value, dict):
        return {name: still(inner) for name, inner in value.items() if name not in CLOCKS | EXACT}
    return [still(inner) for inner in value] if isinstance(value, list) else value


def test_each_field_of_each_row_is_that_of_the_detail() -> None:
    fleet = world().fleet
    fleet.later(1)
    # Of the events that lie ahead, one starts and one ends.
    fleet.say("web-claimed", listing(CLAIMED, resources=("web-claimed",), event_type="Reboot", status="Started"))
    fleet.say("web-held")
    admin, known = caller(factories.admin()), pairs()
    assert len(known) >= 14
    for address, key in known:
        rows = admin.get(address).json()["results"]
        assert rows, address
        for row in rows:
            detail = admin.get(f"{address}{row[key]}/").json()
            for name in INSIDE:
                if isinstance(detail.get(name), dict) and key in detail[name]:
                    detail = detail[name]
            missing = set(row) - set(detail)
            assert missing == set(), (address, missing)
            wrong = {name: (row[name], detail[name]) for name in row if still(row[name]) != still(detail[name])}
            assert {name for name in wrong if name not in CLOCKS | EXACT} == set(), (address, wrong)
            assert {name: row[name] is None for name in CLOCKS & set(row)} == {
                name: detail[name] is None for name in CLOCKS & set(row)
            }, address
