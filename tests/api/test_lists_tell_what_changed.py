"""`changed_since` in API lists: a polling client reads every change and loses none."""

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
from tests.api.conftest import Caller, caller
from tests.factories import acting
from tests.plans import is_answered_by


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
