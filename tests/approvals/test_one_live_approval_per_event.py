"""Approvals: an event is approved only in time, and only once."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, Entry, Hold, ScheduledEvent
from fleet.operations.approvals import conditions as operation
from fleet.operations.approvals.approve import Plan
from tests.approvals.asking import by_rule, entries, refused
from tests.factories import NOW, Fleet, acting, after, announced, listing, open_order, operator, seconds, who
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db


def test_the_grant_writes_the_approval_the_first_order_and_both_entries(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = fleet.approve(comment="before the shift ends")
    order = open_order(approval)
    assert (approval.state, approval.comment, approval.event_version) == ("GRANTED", "before the shift ends", 1)
    assert (order.state, order.machine.resource_name, order.expires_at) == ("OFFERED", "vm1", event.not_before)
    kinds = set(Entry.objects.filter(approval=approval).values_list("kind", flat=True))
    assert kinds == {"approval_granted", "order_offered"}


@pytest.mark.parametrize(
    ("event", "later", "code", "reason"),
    [
        ({"not_before": NOW + seconds(30)}, 31, "too-late", "too-late"),
        ({"status": "Started"}, 1, "too-late", "event-not-open"),
        ({}, 90, "guarded", "no-live-machine"),
    ],
)
def test_an_event_that_cannot_be_approved_is_refused(
    fleet: Fleet, event: dict[str, Any], later: int, code: str, reason: str
) -> None:
    announced(fleet, **event)
    fleet.later(later)
    error = refused(fleet.approve)
    assert (error.code, error.reason.code) == (code, reason)
    assert refused(lambda: fleet.approve("NO-SUCH-EVENT")).code == "unknown-event"


def test_an_event_that_changed_since_one_looked_is_refused_with_its_new_version(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(1)
    fleet.all_say(listing(resources=["vm1", "vm2", "vm3"]))
    error = refused(lambda: fleet.approve(expected_version=1))
    assert (error.code, error.details["version"]) == ("version-changed", 2)


def test_the_database_itself_holds_one_live_approval_and_one_open_order(fleet: Fleet, approval: Approval) -> None:
    order = open_order(approval)
    # The same order and approval once more.
    with pytest.raises(IntegrityError, match="one_open_order_per_approval"), transaction.atomic():
        order.pk = uuid4()
        order.save(force_insert=True)
    with pytest.raises(IntegrityError, match="one_live_approval_per_event"), transaction.atomic():
        approval.pk = None
        approval.save(force_insert=True)


# People and rules: a person's decision replaces that of a rule until its order is sent.


def test_a_rules_waiting_approval_is_withdrawn_for_the_persons(fleet: Fleet, event: ScheduledEvent) -> None:
    planned = by_rule(fleet, event, Plan(when=When.PREPARED))
    fleet.later(5)
    mine = fleet.approve()
    assert (after(planned).state, mine.state) == ("WITHDRAWN", "GRANTED")
    assert code_of(planned.reason) == "beaten-by-person"


def test_sent_rule_approval_stays_and_the_refusal_names_the_rule(fleet: Fleet, event: ScheduledEvent) -> None:
    sent = by_rule(fleet, event, Plan())
    error = refused(fleet.approve)
    assert (error.code, error.details["approval"]) == ("already-decided", sent.pk)
    assert sentence(error.details["by"]) == "the rule “freezes”"


def test_where_the_person_is_refused_the_rules_decision_stays(fleet: Fleet, event: ScheduledEvent) -> None:
    planned = by_rule(fleet, event, Plan(when=When.PREPARED))
    fleet.later(1)
    assert refused(lambda: fleet.approve(expected_version=7)).code == "version-changed"
    assert refused(lambda: fleet.approve(when=When.TIME, due_at=fleet.now - seconds(1))).code == "validation"
    assert after(planned).state == "WAITING"


def test_rule_never_supersedes_a_person(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.approve(when=When.PREPARED)
    assert refused(lambda: by_rule(fleet, event, Plan())).code == "already-decided"
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert refused(lambda: by_rule(fleet, event, Plan())).code == "already-decided"


# Withdrawal: an approval can be withdrawn until a machine receives its order.


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
