"""Approvals that wait: for prepared machines, for a time or until an undo is too late.

Then each is dispatched, delayed or lapses.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, AvailabilitySet, Machine, ScheduledEvent
from fleet.operations import reconcile, waves
from fleet.operations.approvals import conditions
from fleet.operations.orders.queue import decided_plans
from fleet.operations.policy import apply, rules
from tests import factories
from tests.approvals.asking import OTHER, codes, entries, hook, orders, prepared, refused, two_events
from tests.dashboard.conftest import acts, logged_in, marks, text_of
from tests.factories import (
    EVENT,
    Fleet,
    acting,
    after,
    announced,
    approver,
    listing,
    open_order,
    operator,
    seconds,
    the_set,
)
from tests.plans import queries
from tests.policy.conftest import made
from tests.words import code_of, text

pytestmark = pytest.mark.django_db


class TestOnceItIsPrepared:
    def test_it_goes_when_the_last_machine_that_it_hits_is_ready(self, fleet: Fleet, event: ScheduledEvent) -> None:
        approval = fleet.approve(when=When.PREPARED)
        assert (approval.state, approval.when, orders(approval)) == ("WAITING", "prepared", 0)
        prepared(fleet, "vm1")
        fleet.advance()
        assert after(approval).state == "WAITING"
        prepared(fleet, "vm2")
        fleet.advance()
        assert after(approval).state == "GRANTED"
        assert approval.granted_at == fleet.now
        assert open_order(approval).machine.resource_name == "vm1"
        (line,) = entries("approval_due")
        assert text(line) == "Every affected machine is prepared. Drydock sends the approval to Azure."
        assert (line.before, line.after) == ({"approval": "WAITING"}, {"approval": "GRANTED"})

    def test_a_machine_without_hooks_is_prepared_as_long_as_it_is_live(self, fleet: Fleet) -> None:
        announced(fleet)
        approval = fleet.approve(when=When.PREPARED)
        hook(fleet, "vm1", EVENT, "end", "nothing")
        prepared(fleet, "vm2")
        fleet.tick(70, "vm2", "vm3", "vm4")
        assert after(approval).state == "WAITING"
        fleet.heard()
        fleet.advance()
        assert after(approval).state == "GRANTED"

    def test_still_preparing_or_failed_takes_no_reason_for_waiting_is_what_was_decided(self, fleet: Fleet) -> None:
        # A name without an agent is never prepared.
        announced(fleet, resources=("vm1", "vm2", "ghost"))
        hook(fleet, "vm1", EVENT, "begin", "running")
        hook(fleet, "vm2", EVENT, "end", "failed")
        assert refused(fleet.approve).code == "guarded"
        approval = fleet.approve(when=When.PREPARED)
        assert approval.overrides == []
        for prepares in ((), ("vm1", "vm2")):
            prepared(fleet, *prepares)
            fleet.advance()
            assert after(approval).state == "WAITING"

    def test_prepared_already_goes_at_once(self, fleet: Fleet, event: ScheduledEvent) -> None:
        prepared(fleet, "vm1", "vm2")
        approval = fleet.approve(when=When.PREPARED)
        reconcile.advance_new_approval(approval_id=approval.pk, now=fleet.now, via="celery")
        assert after(approval).state == "RELAYING"
        assert orders(approval) == 1


class TestAtATime:
    def test_it_goes_when_the_time_has_come(self, fleet: Fleet, event: ScheduledEvent) -> None:
        due = fleet.now + seconds(120)
        approval = fleet.approve(when=When.TIME, due_at=due)
        assert (approval.state, approval.due_at) == ("WAITING", due)
        assert text(entries("approval_planned")[0]) == f"otto approved: start at {due:%Y-%m-%d %H:%M:%S} UTC. “go”"
        fleet.tick(119)
        assert after(approval).state == "WAITING"
        fleet.later(1)
        fleet.advance()
        assert after(approval).state == "GRANTED"

    @pytest.mark.parametrize("after", [-1, 0, 900, 1000, None])
    def test_only_a_time_between_now_and_not_before(self, fleet: Fleet, after: int | None) -> None:
        event = announced(fleet)
        assert event.not_before == fleet.now + seconds(899)
        due = None if after is None else fleet.now + seconds(after)
        error = refused(lambda: fleet.approve(when=When.TIME, due_at=due))
        assert error.code == "validation" and error.reason.code.startswith("due-time-")
        # A time means nothing to the other ways.
        assert fleet.approve(due_at=due).due_at is None

    def test_new_guard_delays_a_planned_approval_and_is_recorded(self, fleet: Fleet) -> None:
        two_events(fleet)
        planned = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
        first = fleet.approve(OTHER)
        fleet.tick(61)
        assert after(planned).state == "WAITING"
        Approval.objects.filter(pk=first.pk).update(state="LAPSED")
        # As the entry would make it that goes with such a step.
        ScheduledEvent.objects.update(next_check_at=None)
        fleet.advance()
        assert after(planned).state == "GRANTED"


@pytest.mark.parametrize("when", [When.PREPARED, When.TIME])
class TestItsEnd:
    def planned(self, fleet: Fleet, when: When) -> Approval:
        announced(fleet)
        return fleet.approve(when=when, due_at=fleet.now + seconds(600))

    def test_it_counts_as_decided_and_lapses_at_not_before(self, fleet: Fleet, when: When) -> None:
        approval = self.planned(fleet, when)
        error = refused(lambda: fleet.approve(by=operator("olga")))
        assert (error.code, error.details["by"]) == ("already-decided", "otto")
        assert error.reason.values["state"] == "WAITING"
        # No reconciliation ran for a quarter of an hour: an approval that came due meanwhile is too late.
        fleet.tick(901)
        assert (after(approval).state, code_of(approval.reason)) == ("LAPSED", "lapsed-waiting")
        assert approval.closed_at == fleet.now

    @pytest.mark.parametrize("code", ["started-before-sent", "ended-before-sent"])
    def test_it_is_void_once_the_event_started_or_is_gone(self, fleet: Fleet, when: When, code: str) -> None:
        approval = self.planned(fleet, when)
        fleet.later(30)
        started = listing(status="Started", resources=["vm1", "vm2"])
        fleet.all_say(*([started] if code == "started-before-sent" else []))
        fleet.advance()
        assert (after(approval).state, code_of(approval.reason)) == ("VOID", code)


# Undo: an approval on a page can be undone for some seconds, then its guards run again and it is dispatched.


ALL = tuple(f"vm{number}" for number in range(1, 7))


@pytest.fixture(autouse=True)
def some_seconds(settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3


def clicked(fleet: Fleet, **fields: Any) -> Approval:
    """Approved as the button of a page does it."""
    return fleet.approve(when=When.UNDO, **fields)


def undo(fleet: Fleet, approval: Approval, *, comment: str = "") -> None:
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator(), why=comment), now=fleet.now)


def test_nothing_goes_to_azure_before_the_seconds_are_over(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = clicked(fleet, comment="go")
    assert (approval.state, approval.when, approval.due_at) == ("WAITING", "undo", fleet.now + seconds(3))
    fleet.later(2.9)
    fleet.advance()
    assert (after(approval).state, orders(approval)) == ("WAITING", 0)
    assert conditions.due_for_dispatch(until=fleet.now) == []
    assert conditions.due_for_dispatch(until=fleet.now + seconds(1)) == [(approval.due_at, [approval.event_id])]
    fleet.later(0.1)
    assert conditions.advance(now=fleet.now, event_pks=[approval.event_id]) == 1
    # A second process finds nothing left to dispatch.
    assert conditions.advance(now=fleet.now, event_pks=[approval.event_id]) == 0
    assert (after(approval).state, after(approval).granted_at, orders(approval)) == ("GRANTED", fleet.now, 1)
    assert [text(line) for line in (*entries("approval_planned"), *entries("approval_due"))] == [
        "otto approved: start now. “go”",
        "The undo period passed without an undo. Drydock sends the approval to Azure.",
    ]


def test_undone_it_leaves_an_entry_and_can_be_decided_again(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = clicked(fleet)
    fleet.later(1)
    undo(fleet, approval, comment="the wrong one")
    assert after(approval).state == "WITHDRAWN"
    assert code_of(after(approval).reason) == "undone"
    fleet.later(10)
    fleet.advance()
    assert orders(approval) == 0
    assert clicked(fleet).state == "WAITING"


@pytest.mark.parametrize(("when", "decides"), [(When.UNDO, True), (When.PREPARED, False)])
def test_rules_decide_as_before_after_it_was_undone_but_not_after_a_withdrawal(
    fleet: Fleet, event: ScheduledEvent, when: When, decides: bool
) -> None:
    undo(fleet, fleet.approve(when=when))
    made(at=fleet.now, event_types=["Freeze"])
    fleet.later(1)
    fleet.advance()
    assert Approval.objects.filter(rule__isnull=False).exists() is decides


@pytest.mark.parametrize(("left", "period"), [(59, 3), (1, 3), (900, 0)])
def test_in_the_last_minute_or_without_an_undo_period_it_goes_at_once(
    fleet: Fleet, settings: Any, left: int, period: int
) -> None:
    settings.APPROVAL_UNDO_SECONDS = period
    announced(fleet, not_before=fleet.now + seconds(left + 1))
    approval = clicked(fleet)
    assert (approval.when, approval.due_at, approval.state, orders(approval)) == ("now", None, "GRANTED", 1)


def test_what_was_stopped_meanwhile_does_not_go(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = clicked(fleet)
    fleet.later(1)
    rules.stop_all(actor=acting(approver(), why="all of it"), now=fleet.now)
    fleet.later(2)
    fleet.advance()
    assert (after(approval).state, orders(approval)) == ("WAITING", 0)


def test_a_proposal_waits_for_its_second_person_whose_agreement_can_be_undone(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot", resources=ALL)
    approval = clicked(fleet)
    assert (approval.state, approval.when, approval.due_at) == ("PROPOSED", "now", None)
    fleet.later(20)
    done = conditions.consent(approval_id=approval.pk, actor=acting(approver()), now=fleet.now, undo=True)
    assert (done.state, done.when, done.due_at) == ("WAITING", "undo", fleet.now + seconds(3))
    fleet.later(3)
    fleet.advance()
    assert orders(approval) == 1


class TestOnThePage:
    @pytest.fixture
    def fleet(self, settings: Any) -> Fleet:
        # Real time passes here, on machines that are slow now and then.
        settings.APPROVAL_UNDO_SECONDS = 9
        return Fleet(datetime.now(UTC) - timedelta(seconds=2))

    def test_one_click_waits_and_everybody_sees_whose_it_is_and_how_long(self, fleet: Fleet) -> None:
        event = announced(fleet)
        otto, olga = logged_in(operator()), logged_in(operator("olga"))
        address = f"/events/{event.event_id}/"
        answers = [otto.post(f"{address}approve/", {"when": "now"}, headers={"HX-Request": "true"})]
        answers += [client.get(address) for client in (otto, olga)]
        for answer in answers:
            assert '<div class="undo">' in answer.content.decode() and "withdraw" in acts(answer)
            assert "otto" in text_of(answer)
        approval = Approval.objects.get()
        assert (approval.when, approval.via) == ("undo", "page")
        undone = olga.post(f"/approvals/{approval.pk}/withdraw/", headers={"HX-Request": "true"})
        assert "undone" in marks(undone, "data-code") and "approve" in acts(undone)

    def test_the_api_is_immediate(self, fleet: Fleet, event: ScheduledEvent, client: Client) -> None:
        client.force_login(operator())
        said = client.post(
            f"/api/v1/events/{event.event_id}/approvals/", {"comment": "go"}, content_type="application/json"
        )
        assert (said.status_code, said.json()["when"], said.json()["state"]) == (201, "now", "GRANTED")


def test_internal_approval_modes_are_refused_in_a_form(fleet: Fleet, event: ScheduledEvent) -> None:
    page = logged_in(operator())
    for when in ("undo", "turn"):
        assert page.post(f"/events/{event.event_id}/approve/", {"when": when}).status_code == 422
    assert not Approval.objects.exists()


# Machines that plan to prepare later: an approval makes them prepare, and is sent when they are prepared.


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
