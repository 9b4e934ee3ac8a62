"""Machines that plan to prepare later: an approval makes them prepare, and is sent when they are prepared."""

from typing import Any

import pytest

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, AvailabilitySet, Machine
from fleet.operations import waves
from fleet.operations.approvals import conditions
from fleet.operations.orders.queue import decided_plans
from fleet.operations.policy import apply, rules
from tests import factories
from tests.approvals.asking import OTHER, codes, hook, orders, prepared, refused, two_events
from tests.factories import EVENT, Fleet, acting, after, announced, listing, open_order, operator, seconds, the_set
from tests.plans import queries
from tests.policy.conftest import made

pytestmark = pytest.mark.django_db
WEEK = 7 * 86400
REASON = {"not-prepared": "it is empty"}


def planned(fleet: Fleet, *names: str, event_id: str = EVENT) -> None:
    """An event a week ahead; these machines (or both that it names) plan to prepare an hour before."""
    if not fleet.agents:
        announced(fleet, not_before=fleet.now + seconds(WEEK))
    for name in names or ("vm1", "vm2"):
        hook(fleet, name, event_id, "plan", "planned", planned_at=fleet.now + seconds(WEEK - 3600))


def notified(fleet: Fleet) -> dict[str, list[str]]:
    """The machines that must prepare now, with the events."""
    names = dict(Machine.objects.values_list("pk", "resource_name"))
    return {names[machine_id]: events for machine_id, events in sorted(decided_plans(now=fleet.now).items())}


def test_when_prepared_makes_them_prepare_and_waits_for_them(fleet: Fleet) -> None:
    planned(fleet)
    # Without a decision no machine prepares.
    assert notified(fleet) == {}
    approval = fleet.approve(when=When.PREPARED)
    assert (approval.state, notified(fleet)) == ("WAITING", {"vm1": [EVENT], "vm2": [EVENT]})
    prepared(fleet, "vm1")
    fleet.advance()
    assert (after(approval).state, notified(fleet)) == ("WAITING", {"vm2": [EVENT]})
    prepared(fleet, "vm2")
    fleet.advance()
    assert (after(approval).state, notified(fleet)) == ("GRANTED", {})


def test_a_plan_that_arrives_after_the_decision_ends_at_once_too(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(WEEK))
    fleet.approve(when=When.PREPARED)
    assert notified(fleet) == {}
    planned(fleet, "vm2")
    assert notified(fleet) == {"vm2": [EVENT]}


def test_now_needs_a_reason_and_all_prepare_while_it_is_sent(fleet: Fleet) -> None:
    planned(fleet)
    assert codes(refused(fleet.approve)) == ["not-prepared"]
    approval = fleet.approve(overrides=REASON)
    assert (approval.state, notified(fleet)) == ("GRANTED", {"vm1": [EVENT], "vm2": [EVENT]})
    # The reason still covers them when they prepare.
    hook(fleet, "vm1", EVENT, "begin", "running")
    order = open_order(approval)
    fleet.advance()
    assert (after(approval).state, notified(fleet)) == ("RELAYING", {"vm2": [EVENT]})
    fleet.receipt(order)
    fleet.advance()
    assert (after(approval).state, notified(fleet)) == ("ACCEPTED", {"vm2": [EVENT]})
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert notified(fleet) == {}


def test_what_can_still_be_undone_or_needs_a_second_person_prepares_no_machine(fleet: Fleet, settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 10
    planned(fleet)
    approval = fleet.approve(when=When.UNDO, overrides=REASON)
    assert (approval.state, notified(fleet)) == ("WAITING", {})
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator()), now=fleet.now)
    AvailabilitySet.objects.update(second_person=True)
    assert (fleet.approve(when=When.PREPARED).state, notified(fleet)) == ("PROPOSED", {})


def test_at_a_time_needs_no_reason_prepares_then_and_goes_when_prepared(fleet: Fleet) -> None:
    planned(fleet)
    approval = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(600))
    assert (approval.overrides, notified(fleet)) == ([], {})
    fleet.tick(601)
    assert (after(approval).state, notified(fleet)) == ("WAITING", {"vm1": [EVENT], "vm2": [EVENT]})
    prepared(fleet, "vm1", "vm2")
    fleet.advance()
    assert (after(approval).state, orders(approval), notified(fleet)) == ("GRANTED", 1, {})


def test_a_wave_makes_a_machine_prepare_at_its_turn(fleet: Fleet) -> None:
    first, second = two_events(fleet)
    AvailabilitySet.objects.update(service="shop")
    planned(fleet, "vm1")
    planned(fleet, "vm2", event_id=OTHER)
    waves.begin(actor=acting(operator(), why="patch night"), events=(first.event_id, second.event_id), now=fleet.now)
    assert notified(fleet) == {"vm1": [EVENT]}
    prepared(fleet, "vm1")
    fleet.advance()
    assert Approval.objects.get(event=first).state == "GRANTED"
    assert notified(fleet) == {}


def test_no_machine_is_notified_that_left_the_set_or_while_all_approvals_are_stopped(fleet: Fleet) -> None:
    planned(fleet)
    fleet.approve(when=When.PREPARED)
    fleet.enrol("admin", availability_set="db")
    Machine.objects.filter(resource_name="vm1").update(availability_set=the_set("db"))
    assert notified(fleet) == {"vm2": [EVENT]}
    rules.stop_all(actor=acting(factories.admin(), why="it runs wild"), now=fleet.now)
    assert notified(fleet) == {}


class TestARule:
    def decide(self, fleet: Fleet, **fields: Any) -> list[Approval]:
        made(at=fleet.now, **fields)
        apply.decide(now=fleet.now)
        return list(Approval.objects.all())

    def test_that_approves_now_waits_for_machines_that_plan_to_prepare(self, fleet: Fleet) -> None:
        planned(fleet)
        (approval,) = self.decide(fleet)
        assert (approval.state, approval.when) == ("WAITING", "prepared")
        assert notified(fleet) == {"vm1": [EVENT], "vm2": [EVENT]}
        prepared(fleet, "vm1", "vm2")
        fleet.advance()
        assert after(approval).state == "GRANTED"

    def test_that_accepts_unprepared_machines_does_not_wait(self, fleet: Fleet) -> None:
        planned(fleet)
        (approval,) = self.decide(fleet, accepts=["not-prepared"])
        assert (approval.state, approval.when) == ("GRANTED", "now")

    def test_leaves_it_to_users_if_a_hook_has_failed(self, fleet: Fleet) -> None:
        planned(fleet, "vm1")
        hook(fleet, "vm2", EVENT, "end", "failed")
        assert self.decide(fleet) == []


def test_looking_costs_one_query_and_the_same_for_many(fleet: Fleet) -> None:
    planned(fleet)
    assert len(queries(decided_plans, now=fleet.now)) == 1
    fleet.approve(when=When.PREPARED)
    few = len(queries(decided_plans, now=fleet.now))
    ids = [f"0A1B2C3D-0000-4000-8000-{number:012d}" for number in range(9)]
    due = fleet.now + seconds(WEEK)
    fleet.all_say(*(listing(one, resources=["vm1", "vm2"], not_before=due) for one in (EVENT, *ids)))
    for one in ids:
        planned(fleet, event_id=one)
        fleet.approve(one, when=When.PREPARED)
    assert len(notified(fleet)["vm1"]) == 10
    assert len(queries(decided_plans, now=fleet.now)) == few == 3
