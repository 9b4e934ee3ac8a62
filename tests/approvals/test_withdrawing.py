"""Withdrawal: an approval can be withdrawn until a machine receives its order."""

import pytest
from django.contrib.auth.models import User

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, Hold, ScheduledEvent
from fleet.operations.approvals import conditions as operation
from fleet.operations.approvals.approve import Plan
from tests.approvals.asking import by_rule, entries, refused
from tests.factories import Fleet, acting, listing, operator, seconds, who
from tests.words import code_of, text

pytestmark = pytest.mark.django_db


def withdraw(fleet: Fleet, approval: Approval, by: User | None = None, *, comment: str = "", **fields: str) -> Approval:
    actor = acting(by or operator("olga"), why=comment, **fields)
    return operation.withdraw(approval_id=approval.pk, actor=actor, now=fleet.now)


def test_what_waits_is_withdrawn_and_the_event_waits_for_a_decision_again(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = fleet.approve(when=When.PREPARED)
    fleet.later(7)
    done = withdraw(fleet, approval, comment="not tonight", token_name="phone", via="api")
    assert (done.state, done.closed_at, code_of(done.reason)) == ("WITHDRAWN", fleet.now, "withdrawn")
    (line,) = entries("approval_withdrawn")
    assert (who(line), line.via, line.token_name, line.why) == ("olga", "api", "phone", "not tonight")
    assert (line.before, line.after) == ({"approval": "WAITING"}, {"approval": "WITHDRAWN"})
    assert not Hold.objects.exists()
    assert fleet.approve().state == "GRANTED"


def test_not_once_an_order_was_offered(fleet: Fleet, event: ScheduledEvent) -> None:
    error = refused(lambda: withdraw(fleet, fleet.approve()))
    assert (error.code, error.reason.code) == ("too-late", "withdraw-order-offered")


def test_not_twice_and_the_answer_says_how_it_ended(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = fleet.approve(when=When.PREPARED)
    withdraw(fleet, approval)
    error = refused(lambda: withdraw(fleet, approval))
    assert (error.code, error.reason.code, error.reason.values["state"]) == ("too-late", "withdraw-ended", "WITHDRAWN")
    assert refused(lambda: withdraw(fleet, Approval(pk=0))).code == "unknown-approval"


def test_machines_that_are_live_now_count_and_not_those_of_the_decision(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(600))
    fleet.later(300)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    # No reconciliation has run yet: the user withdraws first.
    assert withdraw(fleet, approval).state == "WITHDRAWN"


def test_what_a_rule_decided_is_held_then_so_that_no_rule_decides_it_again(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = by_rule(fleet, event, Plan(when=When.PREPARED))
    withdraw(fleet, approval, comment="a person looks")
    hold = Hold.objects.get()
    assert (hold.event_id, hold.ended_at, hold.reason) == (event.pk, None, "a person looks")
    assert hold.by is not None and hold.by.username == "olga"
    assert text(entries("event_held")[0]).startswith("olga withdrew the decision of the rule")
