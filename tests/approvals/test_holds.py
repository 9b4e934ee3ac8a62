"""Holds: an operator's hold has a reason, stops rules, requires a reason from approvers, and never reaches Azure."""

import pytest
from django.contrib.auth.models import User

from fleet.domain import actor
from fleet.domain.approvals.conditions import When
from fleet.models import Approval, Hold, ScheduledEvent
from fleet.operations.approvals import approve, claims
from fleet.operations.approvals.approve import Plan
from tests.approvals.asking import a_rule, by_rule, codes, entries, held, refused
from tests.factories import EVENT, Fleet, acting, after, announced, listing, operator, told
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db


def lift(fleet: Fleet, by: User) -> Hold:
    return claims.lift(event_id=EVENT, actor=acting(by), now=fleet.now)


def test_a_hold_says_who_since_when_why_and_what_it_means(fleet: Fleet, event: ScheduledEvent) -> None:
    row = held(fleet, event, operator("olga"), "the shop is open")
    assert (row.at, row.reason, row.ended_at) == (fleet.now, "the shop is open", None)
    (line,) = entries("event_held")
    assert text(line) == "olga left the event to Azure: no rule approves it. “the shop is open”"
    assert (told(line).before, told(line).after, line.why) == ({"hold": None}, {"hold": "olga"}, "the shop is open")


def test_approving_against_it_takes_a_reason_and_lifting_it_none(fleet: Fleet) -> None:
    event, olga = announced(fleet), operator("olga")
    assert refused(lambda: held(fleet, event, olga, " ")).reason.code == "hold-without-reason"
    held(fleet, event, olga)
    assert codes(refused(fleet.approve)) == ["held"]
    lift(fleet, operator("otto"))
    assert text(entries("hold_ended")[0]) == "otto no longer leaves the event to Azure, as olga did."
    assert fleet.approve().state == "GRANTED"


def test_second_hold_and_second_lift_are_refused(fleet: Fleet, event: ScheduledEvent) -> None:
    olga = operator("olga")
    held(fleet, event, olga)
    error = refused(lambda: held(fleet, event, operator()))
    assert (error.code, error.details["reason"]) == ("already-held", "the shop is open")
    lift(fleet, olga)
    assert refused(lambda: lift(fleet, olga)).code == "not-held"


def test_what_is_approved_cannot_be_held_and_the_answer_says_by_whom_and_when(fleet: Fleet) -> None:
    event = announced(fleet)
    approval = fleet.approve()
    error = refused(lambda: held(fleet, event, operator("olga")))
    assert (error.code, error.details["by"], error.details["approval"]) == ("already-decided", "otto", approval.pk)
    assert error.details["at"] == fleet.now.isoformat().replace("+00:00", "Z")


def test_it_ends_with_the_event_and_comes_too_late_for_one_that_started(fleet: Fleet, event: ScheduledEvent) -> None:
    row = held(fleet, event, operator())
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    lift(fleet, operator())
    assert refused(lambda: held(fleet, event, operator())).code == "too-late"
    fleet.later(60)
    fleet.all_say()
    assert after(row).ended_at is not None


def test_it_beats_what_a_rule_has_decided_and_not_sent(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = by_rule(fleet, event, Plan(when=When.PREPARED))
    held(fleet, event, operator("olga"))
    assert (after(approval).state, code_of(approval.reason)) == ("WITHDRAWN", "beaten-by-person")


def test_a_rule_holds_too_and_a_person_may_go_past_it(fleet: Fleet, event: ScheduledEvent) -> None:
    by_rule = actor.rule(a_rule(fleet), "Freeze: hold").because("people decide")
    with approve.decision_lock(event.pk):
        row = claims.hold_locked(event.pk, approve.load_facts_locked(event.pk, now=fleet.now), by_rule, now=fleet.now)
    assert (row.by, row.rule_wording) == (None, "Freeze: hold")
    error = refused(fleet.approve)
    assert "the rule “freezes” left the event to Azure" in sentence(error)
    assert fleet.approve(overrides={"held": "I looked"}).state == "GRANTED"
    assert Approval.objects.get().overrides[0]["reason"] == "I looked"
