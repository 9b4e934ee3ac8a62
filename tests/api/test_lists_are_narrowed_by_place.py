"""What three hundred machines need: every list by service, subscription, resource group, set and machine, and by how
present a machine is; ordered by what the list names; and never a word of what is out of sight.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection

from fleet.models import Approval, AvailabilitySet, Machine, ScheduledEvent, Scope
from fleet.operations.approvals import claims
from fleet.projections.changes import PARTS
from fleet.projections.filters import EventFilter
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.factories import acting
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


# `changed_since`: a polling client reads every change and loses none.


def clock() -> str:
    """The database's own, by which rows change."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    return str(now.isoformat()).replace("+00:00", "Z")


def changed(who: Caller, address: str, since: str) -> list[dict[str, Any]]:
    answer = who.get(f"{address}?changed_since={since}")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    assert all(row["changed_at"] >= since for row in found)
    return found


@pytest.fixture
def event(fleet: factories.Fleet) -> ScheduledEvent:
    fleet.enrol_set(2)
    fleet.enrol_set(1, prefix="other", availability_set="other")
    names = ["vm1", "vm2"]
    for event_id, named in (("EVENT", names), ("ELSEWHERE", ["other1"])):
        due = fleet.now + factories.seconds(900)
        fleet.all_say(factories.listing(event_id, resources=named, not_before=due), names=named)
    return factories.the_event("EVENT")


def test_an_event_changes_with_all_that_its_row_tells(
    event: ScheduledEvent, fleet: factories.Fleet, viewer: Caller
) -> None:
    otto = acting(factories.operator(), why="let it run")
    of_event: dict[str, Any] = {"event_id": "EVENT", "actor": otto, "now": fleet.now}
    steps: dict[str, Callable[[], object]] = {
        "claimed": lambda: claims.claim(**of_event),
        "given back": lambda: claims.give_back(**of_event),
        "held": lambda: claims.hold(**of_event),
        "lifted": lambda: claims.lift(**of_event),
        "approved": lambda: fleet.approve("EVENT"),
        "order delivered": lambda: fleet.delivered(factories.open_order(Approval.objects.get())),
        "gone": lambda: (fleet.later(5), fleet.all_say(names=["vm1", "vm2"])),
    }
    for step, act in steps.items():
        since = clock()
        assert changed(viewer, "events/", since) == [], step
        act()
        (row,) = changed(viewer, "events/", since)
        assert row["event_id"] == "EVENT", step
        assert viewer.get("events/EVENT/").json()["changed_at"] == row["changed_at"]
    assert [one["name"] for one in changed(viewer, "sets/", since)] == ["web"]


def test_looking_at_an_event_changes_nothing_and_a_direct_write_does(
    event: ScheduledEvent, fleet: factories.Fleet, viewer: Caller
) -> None:
    since = clock()
    ScheduledEvent.objects.update(next_check_at=fleet.now)
    ScheduledEvent.objects.get(pk=event.pk).save()
    assert changed(viewer, "events/", since) == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE fleet_scheduledevent SET description = 'new' WHERE event_id = 'EVENT'")
    assert [row["event_id"] for row in changed(viewer, "events/", since)] == ["EVENT"]


def test_a_machine_changes_when_it_turns_and_not_when_it_is_heard(fleet: factories.Fleet, viewer: Caller) -> None:
    fleet.enrol_set(2)
    fleet.advance()
    since = clock()
    fleet.heard()
    assert changed(viewer, "machines/", since) == []
    fleet.later(120)
    fleet.heard("vm2")
    fleet.advance()
    assert [row["resource_name"] for row in changed(viewer, "machines/", since)] == ["vm1"]
    assert [row["name"] for row in changed(viewer, "sets/", since)] == ["web"]
    assert viewer.get(f"machines/{Machine.objects.get(resource_name='vm1').pk}/").json()["changed_at"] >= since


def test_a_set_changes_when_it_is_named_and_when_a_machine_joins(fleet: factories.Fleet, viewer: Caller) -> None:
    fleet.enrol_set(2)
    since = clock()
    assert changed(viewer, "sets/", since) == []
    factories.change_set(set_id=factories.the_set().pk, service="shop", actor=acting(factories.admin()), now=fleet.now)
    assert [row["service"] for row in changed(viewer, "sets/", since)] == ["shop"]
    since = clock()
    fleet.enrol("vm9")
    assert [row["name"] for row in changed(viewer, "sets/", since)] == ["web"]
    assert AvailabilitySet.objects.get().changed_at.isoformat() < since


def test_approvals_are_listed_and_change_with_their_orders(
    event: ScheduledEvent, fleet: factories.Fleet, viewer: Caller
) -> None:
    fleet.approve("EVENT")
    (row,) = viewer.get("approvals/").json()["results"]
    assert row["event_id"] == "EVENT"
    assert row == viewer.get(f"approvals/{row['id']}/").json() | {
        "server_time": row["server_time"], "next_asked": None, "orders": row["orders"],
    }  # fmt: skip
    since = clock()
    assert changed(viewer, "approvals/", since) == []
    fleet.delivered(factories.open_order(Approval.objects.get()))
    assert [one["id"] for one in changed(viewer, "approvals/", since)] == [row["id"]]
    for query in ("state=RELAYING", "event=event", "set_name=web", "ordering=decided_at"):
        assert len(viewer.get(f"approvals/?{query}").json()["results"]) == 1, query
    assert viewer.get("approvals/?set_name=other").json()["results"] == []


def test_every_part_table_has_a_change_trigger(db: None) -> None:
    """Each table of PARTS has its trigger, or a change in it would be lost."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE '%%_changes'")
        kept = {name.strip('"') for (name,) in cursor.fetchall()}
    for model, parts in PARTS.items():
        assert {each._meta.db_table for each in (model, *(part for part, _ in parts))} <= kept


def test_what_changed_is_found_by_the_times_of_its_parts(db: None) -> None:
    tables = [each._meta.db_table for each in (ScheduledEvent, *(part for part, _ in PARTS[ScheduledEvent]))]
    indexes = [f"{each}_by_change" for each in ("event", "approval", "order", "claim", "hold")]
    # Whatever was counted in these tables before.
    for rows in (-1, 1, 1_000):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pg_class SET relpages = 1, reltuples = %s WHERE relname = ANY(%s)", [rows, tables])
        found = EventFilter({"changed_since": "2126-03-02T12:00:00Z"}, now=factories.NOW).qs
        assert is_answered_by(found.order_by(), *indexes), rows


def test_polling_user_sees_no_hidden_change(
    event: ScheduledEvent, fleet: factories.Fleet, settings: LazySettings
) -> None:
    settings.SCOPED_READ_ACCESS = True
    person = factories.viewer("scoped")
    Scope.objects.create(user=person, kind="name", pattern="other")
    since = clock()
    fleet.approve("EVENT")
    for address in ("events/", "sets/", "approvals/", "machines/"):
        assert changed(caller(person), address, since) == [], address
