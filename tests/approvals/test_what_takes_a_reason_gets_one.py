"""Overrides: guards require and record a reason, and only users with the right override them."""

from functools import partial

import pytest

from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Reason
from fleet.models import Approval, NoApprovalWindow, ScheduledEvent
from fleet.operations.approvals.approve import Plan
from fleet.projections.orders import approval as detail
from tests.approvals.asking import OTHER, by_rule, codes, entries, held, hook, refused, two_events
from tests.factories import EVENT, Fleet, announced, approver, operator, seconds
from tests.words import sentence

pytestmark = pytest.mark.django_db


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
