"""Approvals: an event is approved only in time, only once, and with a reason where a guard asks for one."""

from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Reason
from fleet.models import Approval, Entry, Hold, NoApprovalWindow, ScheduledEvent
from fleet.operations.approvals import conditions as operation
from fleet.operations.approvals.approve import Plan
from fleet.projections.orders import approval as detail
from tests.approvals.asking import OTHER, by_rule, codes, entries, held, hook, refused, two_events
from tests.factories import (
    EVENT,
    NOW,
    Fleet,
    acting,
    after,
    announced,
    approver,
    listing,
    open_order,
    operator,
    seconds,
    who,
)
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


# Overrides: guards require and record a reason, and only users with the right override them.


def test_reason_is_asked_for_and_recorded_in_the_approval_and_on_the_timeline(fleet: Fleet) -> None:
    announced(fleet, event_type="Redeploy")
    for reasons in ({}, {"lost-for-good": ""}, {"lost-for-good": "   "}):
        error = refused(partial(fleet.approve, overrides=reasons))
        (guard,) = error.details["guards"]
        assert (error.code, guard["needs"], guard["overridable"]) == ("guarded", "reason", False)
        assert guard["sentence"] == Reason("lost-for-good", event_type="Redeploy")
    assert not Approval.objects.exists()
    approval = fleet.approve(overrides={"lost-for-good": " nothing is kept there "})
    given = [{"code": "lost-for-good", "values": {"event_type": "Redeploy"}, "reason": "nothing is kept there"}]
    (shown,) = detail(approval_id=approval.pk, now=fleet.now).overrides  # type: ignore[union-attr]
    assert sentence(shown.sentence) == "Permanent loss: ephemeral disks."
    assert (approval.state, approval.overrides) == ("GRANTED", given)
    (line,) = entries("approval_granted")
    assert line.data["overrides"] == given
    assert (line.before, line.after) == ({"approval": None}, {"approval": "GRANTED", "when": "now"})


def test_a_reason_for_what_does_not_stand_is_not_recorded(fleet: Fleet, event: ScheduledEvent) -> None:
    assert fleet.approve(overrides={"lost-for-good": "who knows", "no-such": "x"}).overrides == []


def test_each_guard_takes_a_reason_of_its_own(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Redeploy")
    held(fleet, event, operator("olga"))
    hook(fleet, "vm1", EVENT, "end", "failed", hook="10-drain")
    error = refused(lambda: fleet.approve(overrides={"lost-for-good": "a", "held": "b"}))
    assert codes(error) == ["hook-failed"]
    reasons = {"lost-for-good": "a", "held": "b", "hook-failed": "c"}
    approval = fleet.approve(overrides=reasons)
    assert {one["code"]: one["reason"] for one in approval.overrides} == reasons


def test_a_window_asks_for_a_reason_while_it_is_open(fleet: Fleet, event: ScheduledEvent) -> None:
    window = NoApprovalWindow.objects.create(
        name="sale", reason="customers", created_at=fleet.now, starts_at=fleet.now, ends_at=fleet.now + seconds(60)
    )
    assert codes(refused(fleet.approve)) == ["no-approval-window"]
    window.set_pattern = "db*"
    window.save()
    assert fleet.approve().state == "GRANTED"


def test_a_window_counts_at_the_time_for_which_it_is_approved(fleet: Fleet, event: ScheduledEvent) -> None:
    NoApprovalWindow.objects.create(
        name="now", reason="lunch", created_at=fleet.now, starts_at=fleet.now, ends_at=fleet.now + seconds(60)
    )
    NoApprovalWindow.objects.create(
        name="soon", reason="sale", created_at=fleet.now, starts_at=fleet.now + seconds(300)
    )
    error = refused(lambda: fleet.approve(when=When.TIME, due_at=fleet.now + seconds(400)))
    assert [sentence(guard["sentence"]) for guard in error.details["guards"]] == [
        "A no-approval window is open (soon): sale"
    ]
    assert fleet.approve(when=When.TIME, due_at=fleet.now + seconds(120)).state == "WAITING"


def test_only_an_approver_goes_past_another_event_of_the_set_with_a_reason(fleet: Fleet) -> None:
    _, other = two_events(fleet)
    fleet.approve()
    reasons, anna = {"set-in-flight": "four stay up"}, approver()
    assert refused(lambda: fleet.approve(OTHER, overrides=reasons)).code == "not-permitted"
    for call in (
        partial(fleet.approve, OTHER),
        partial(fleet.approve, OTHER, by=anna),
        partial(by_rule, fleet, other, Plan(overrides=reasons)),
    ):
        assert codes(refused(call)) == ["set-in-flight"]
    approval = fleet.approve(OTHER, by=anna, overrides=reasons)
    assert {one["code"]: one["reason"] for one in approval.overrides} == reasons
    # It does not matter once the other one is over.
    Approval.objects.update(state="LAPSED")
    assert fleet.approve(OTHER).overrides == []


def test_blocking_guard_cannot_be_overridden(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(30))
    fleet.later(31)
    anna = approver()
    assert refused(lambda: fleet.approve(by=anna, overrides={"too-late": "please"})).code == "too-late"
    assert refused(lambda: fleet.approve(by=anna, expected_version=9)).code == "too-late"


def test_a_rule_gives_the_reasons_that_it_may_accept_but_passes_no_hold(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Redeploy")
    approval = by_rule(fleet, event, Plan(overrides={"lost-for-good": "stateless"}))
    assert [one["reason"] for one in approval.overrides] == ["stateless"]
    Approval.objects.filter(pk=approval.pk).update(state="LAPSED")
    held(fleet, event, operator("olga"))
    plan = Plan(overrides={"lost-for-good": "stateless", "held": "never mind"})
    assert codes(refused(lambda: by_rule(fleet, event, plan))) == ["held"]
