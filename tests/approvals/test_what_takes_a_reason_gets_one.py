"""Overrides: guards require and record a reason, and only users with the right override them."""

import pytest

from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import Reason
from fleet.models import Approval, NoApprovalWindow
from fleet.operations.approvals.approve import Plan
from fleet.projections.orders import approval as detail
from tests.approvals.asking import OTHER, by_rule, codes, entries, held, hook, refused, two_events
from tests.factories import EVENT, Fleet, announced, approver, operator, seconds, the_event
from tests.words import sentence

pytestmark = pytest.mark.django_db


def test_a_reason_is_asked_for_with_what_it_is_for(fleet: Fleet) -> None:
    announced(fleet, event_type="Redeploy")
    error = refused(fleet.approve)
    assert (error.code, error.details["guards"]) == (
        "guarded",
        [
            {
                "code": "lost-for-good",
                "sentence": Reason("lost-for-good", event_type="Redeploy"),
                "needs": "reason",
                "overridable": False,
            }
        ],
    )
    assert not Approval.objects.exists()


def test_reason_is_recorded_in_the_approval_and_on_the_timeline(fleet: Fleet) -> None:
    announced(fleet, event_type="Redeploy")
    approval = fleet.approve(overrides={"lost-for-good": " nothing is kept there "})
    given = [{"code": "lost-for-good", "values": {"event_type": "Redeploy"}, "reason": "nothing is kept there"}]
    (shown,) = detail(approval_id=approval.pk, now=fleet.now).overrides  # type: ignore[union-attr]
    assert sentence(shown.sentence) == "Permanent loss: ephemeral disks."
    assert (approval.state, approval.overrides) == ("GRANTED", given)
    (line,) = entries("approval_granted")
    assert line.data["overrides"] == given
    assert (line.before, line.after) == ({"approval": None}, {"approval": "GRANTED", "when": "now"})


@pytest.mark.parametrize("reason", ["", "   "])
def test_an_empty_reason_is_none(fleet: Fleet, reason: str) -> None:
    announced(fleet, event_type="Redeploy")
    assert refused(lambda: fleet.approve(overrides={"lost-for-good": reason})).code == "guarded"


def test_a_reason_for_what_does_not_stand_is_not_recorded(fleet: Fleet) -> None:
    announced(fleet)
    assert fleet.approve(overrides={"lost-for-good": "who knows", "no-such": "x"}).overrides == []


def test_each_guard_takes_a_reason_of_its_own(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Redeploy")
    held(fleet, event, operator("olga"))
    hook(fleet, "vm1", EVENT, "end", "failed", hook="10-drain")
    error = refused(lambda: fleet.approve(overrides={"lost-for-good": "a", "held": "b"}))
    assert codes(error) == ["hook-failed"]
    approval = fleet.approve(overrides={"lost-for-good": "a", "held": "b", "hook-failed": "c"})
    assert {one["code"]: one["reason"] for one in approval.overrides} == {
        "lost-for-good": "a",
        "held": "b",
        "hook-failed": "c",
    }


def test_a_window_asks_for_a_reason_while_it_is_open(fleet: Fleet) -> None:
    announced(fleet)
    window = NoApprovalWindow.objects.create(
        name="sale", reason="customers", created_at=fleet.now, starts_at=fleet.now, ends_at=fleet.now + seconds(60)
    )
    assert codes(refused(fleet.approve)) == ["no-approval-window"]
    window.set_pattern = "db*"
    window.save()
    assert fleet.approve().state == "GRANTED"


def test_a_window_counts_at_the_time_for_which_it_is_approved(fleet: Fleet) -> None:
    announced(fleet)
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


class TestAnotherEventOfTheSet:
    def test_an_operator_cannot_go_past_it_not_even_with_a_reason(self, fleet: Fleet) -> None:
        two_events(fleet)
        fleet.approve()
        assert codes(refused(lambda: fleet.approve(OTHER))) == ["set-in-flight"]
        error = refused(lambda: fleet.approve(OTHER, overrides={"set-in-flight": "we must"}))
        assert error.code == "not-permitted"
        assert "the right of an approver" in sentence(error)

    def test_an_approver_can_with_a_reason_that_is_kept(self, fleet: Fleet) -> None:
        two_events(fleet)
        fleet.approve()
        anna = approver()
        assert codes(refused(lambda: fleet.approve(OTHER, by=anna))) == ["set-in-flight"]
        approval = fleet.approve(OTHER, by=anna, overrides={"set-in-flight": "four stay up"})
        assert [(one["code"], one["reason"]) for one in approval.overrides] == [("set-in-flight", "four stay up")]

    def test_a_rule_cannot_whatever_it_says(self, fleet: Fleet) -> None:
        _, other = two_events(fleet)
        fleet.approve()
        error = refused(lambda: by_rule(fleet, other, Plan(overrides={"set-in-flight": "x"})))
        assert codes(error) == ["set-in-flight"]

    def test_it_is_no_matter_once_it_is_over(self, fleet: Fleet) -> None:
        first, _ = two_events(fleet)
        approval = fleet.approve()
        Approval.objects.filter(pk=approval.pk).update(state="LAPSED")
        assert fleet.approve(OTHER).state == "GRANTED"
        assert the_event().pk == first.pk


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
