"""What three hundred machines need: every list by service, subscription, resource group, set and machine, and by how
present a machine is; ordered by what the list names; and never a word of what is out of sight.
"""

from typing import Any

import pytest

from fleet.models import AvailabilitySet, Machine, ScheduledEvent
from fleet.projections.filters import EventFilter
from tests import factories
from tests.api.conftest import Caller, problem
from tests.plans import is_answered_by

# The set "web" of two subscriptions, with a machine of the same name in each.
HERE, THERE = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
LISTS = ("machines/", "sets/", "events/", "drills/", "waves/", "audit/", "messages/", "admissions/", "blind-spots/")


@pytest.fixture
def two(fleet: factories.Fleet) -> dict[str, AvailabilitySet]:
    fleet.enrol("vm1", resourceGroupName="shop")
    fleet.all_say(factories.listing("EVENT-HERE", resources=["vm1"], not_before=fleet.now + factories.seconds(900)))
    first = fleet.agents.pop("vm1")
    fleet.enrol("VM1", resourceGroupName="Bank", subscriptionId=THERE)
    fleet.enrol("vm2", resourceGroupName="Bank", subscriptionId=THERE)
    fleet.all_say(factories.listing("EVENT-THERE", resources=["VM1"], not_before=fleet.now + factories.seconds(800)))
    fleet.agents["first"] = first
    found = {row.subscription: row for row in AvailabilitySet.objects.all()}
    AvailabilitySet.objects.filter(pk=found[HERE].pk).update(service="Shop")
    AvailabilitySet.objects.filter(pk=found[THERE].pk).update(service="Bank")
    return {"here": found[HERE], "there": found[THERE]}


def event_ids(who: Caller, query: str) -> list[str]:
    answer = who.get(f"events/?{query}")
    assert answer.status_code == 200, answer.content
    return [row["event_id"] for row in answer.json()["results"]]


BY_PLACE = (
    ("service=Shop", ["EVENT-HERE"]),
    ("service=shop", []),
    (f"subscription={HERE}", ["EVENT-HERE"]),
    (f"subscription={THERE.upper()}", ["EVENT-THERE"]),
    ("resource_group=SHOP", ["EVENT-HERE"]),
    ("set_name=WEB", ["EVENT-THERE", "EVENT-HERE"]),
    ("set_name=WEB&resource_group=bank", ["EVENT-THERE"]),
    (f"set_name=web&subscription={HERE}&service=Bank", []),
    ("service=Shop&service=Bank", ["EVENT-THERE", "EVENT-HERE"]),
    ("machine_name=vm1", ["EVENT-THERE", "EVENT-HERE"]),
    ("machine_name=vm", []),
    ("machine_name=vm2", []),
    ("machine_name=vm2&machine_name=Vm1&resource_group=shop", ["EVENT-HERE"]),
    ("set=999999999", []),
    ("service=", ["EVENT-THERE", "EVENT-HERE"]),
)


def test_events_are_narrowed_by_place(two: dict[str, AvailabilitySet], viewer: Caller) -> None:
    for query, found in BY_PLACE:
        assert event_ids(viewer, query) == found, query
    here, there = two["here"], two["there"]
    assert event_ids(viewer, f"set={here.pk}") == ["EVENT-HERE"]
    assert event_ids(viewer, f"set={here.pk}&set={there.pk}") == ["EVENT-THERE", "EVENT-HERE"]
    own = Machine.objects.get(availability_set=here)
    assert event_ids(viewer, f"machine={own.pk}") == ["EVENT-HERE"]


def test_every_list_takes_what_says_where(two: dict[str, AvailabilitySet], admin: Caller) -> None:
    query = f"service=Shop&subscription={HERE}&resource_group=shop&set={two['here'].pk}&set_name=web"
    for address in LISTS:
        assert admin.get(f"{address}?{query}").status_code == 200, address
        refused = problem(admin.get(f"{address}?set=web"), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == ["set"], address
        problem(admin.get(f"{address}?sets={two['here'].pk}"), 422, "validation")


def test_machines_and_sets_have_the_same_location_filters(two: dict[str, AvailabilitySet], viewer: Caller) -> None:
    def rows(address: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = viewer.get(address).json()["results"]
        return found

    assert [row["resource_name"] for row in rows("machines/?service=Bank")] == ["VM1", "vm2"]
    assert [row["id"] for row in rows(f"sets/?subscription={HERE}")] == [two["here"].pk]
    assert [row["set"]["id"] for row in rows("machines/?machine_name=vm1&resource_group=bank")] == [two["there"].pk]
    assert [row["id"] for row in rows("sets/?machine_name=vm2")] == [two["there"].pk]


def test_machines_and_sets_by_how_present_a_machine_is(fleet: factories.Fleet, viewer: Caller) -> None:
    ages = {"new": 1, "older": 300, "oldest": 4000, "gone": 90_000, "never": None}
    for name, age in ages.items():
        agent = fleet.enrol(name, availability_set=f"of-{name}", heard=False)
        if age is not None:
            at = fleet.now - factories.seconds(age)
            factories.presence.flush(contacts=[factories.presence.Contact(agent.machine.pk, at, at)])
    # It is heard, and reads nothing.
    deaf = fleet.enrol("deaf", availability_set="of-deaf", heard=False)
    factories.presence.flush(contacts=[factories.presence.Contact(deaf.machine.pk, fleet.now, None)])
    of_presence = {"live": ["new"], "late": ["older"], "silent": ["deaf", "oldest"], "gone": ["gone"]}
    for presence, names in {**of_presence, "expected": ["never"]}.items():
        found = viewer.get(f"machines/?presence={presence}").json()["results"]
        assert [(row["resource_name"], row["presence"]) for row in found] == [(name, presence) for name in names]
        sets = viewer.get(f"sets/?presence={presence}").json()["results"]
        assert [row["name"] for row in sets] == [f"of-{name}" for name in names]
    two = viewer.get("machines/?presence=live&presence=silent").json()["results"]
    assert [row["resource_name"] for row in two] == ["deaf", "new", "oldest"]
    refused = problem(viewer.get("machines/?presence=asleep"), 422, "validation")
    assert [error["field"] for error in refused["errors"]] == ["presence"]


def test_events_go_by_a_column_where_one_is_named(two: dict[str, AvailabilitySet], viewer: Caller) -> None:
    ScheduledEvent.objects.filter(event_id="EVENT-HERE").update(not_before=None)
    assert event_ids(viewer, "ordering=not_before") == ["EVENT-THERE", "EVENT-HERE"]
    assert event_ids(viewer, "ordering=-not_before") == ["EVENT-THERE", "EVENT-HERE"]
    first = viewer.get("events/?ordering=not_before&page_size=1").json()
    second = viewer.get(first["next"]).json()
    assert [row["event_id"] for row in second["results"]] == ["EVENT-HERE"]
    assert viewer.get(second["previous"]).json()["results"][0]["event_id"] == "EVENT-THERE"
    # A cursor keeps its order.
    problem(viewer.get(first["next"].replace("ordering=not_before", "ordering=-not_before")), 422, "validation")
    names = [row["resource_name"] for row in viewer.get("machines/?ordering=-resource_name").json()["results"]]
    assert names == sorted(names, reverse=True)


def test_names_in_resources_are_found_by_an_index(db: None) -> None:
    found = EventFilter({"machine_name": "web-vm1"}, now=factories.NOW).qs
    assert is_answered_by(found, "event_by_words")


def test_a_filter_takes_so_many_values_and_an_order_that_the_list_names(
    two: dict[str, AvailabilitySet], viewer: Caller
) -> None:
    most = "&".join(["set=1"] * 100)
    assert viewer.get(f"events/?{most}").status_code == 200
    for query, field in ((f"events/?{most}&set=1", "set"), ("machines/?ordering=compute", "ordering")):
        refused = problem(viewer.get(query), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == [field]
