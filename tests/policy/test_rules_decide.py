"""Rules decide what is announced, in their order, once; people come first, and guards hold for rules, too."""

import logging
from datetime import time

import pytest

from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import from_json, read_reason
from fleet.models import Approval, AvailabilitySet, Entry, Hold, QuarantinedRow, Rule
from fleet.operations.approvals import claims, conditions
from fleet.operations.policy import apply, rules
from tests.factories import EVENT, Fleet, acting, admin, announced, listing, open_order, operator, seconds, the_event
from tests.plans import queries
from tests.policy.conftest import change_rule, made
from tests.words import sentence

OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"


def test_a_rule_approves_at_the_first_report_and_keeps_its_wording(fleet: Fleet) -> None:
    rule = made(event_types=["Freeze"], max_duration_seconds=8)
    fleet.enrol_set()
    fleet.later(1)
    fleet.say("vm3", listing(resources=("vm1", "vm2"), not_before=fleet.now + seconds(900)))
    approval = Approval.objects.get()
    assert (approval.state, approval.via, approval.rule, approval.decided_by) == ("GRANTED", "rule", rule, None)
    assert sentence(approval.rule_wording) == "Approve now: Freeze events, with an announced duration of at most 8 s."
    assert (approval.comment, approval.decided_at) == (rule.reason, fleet.now)
    assert open_order(approval).machine.resource_name == "vm3"
    entry = Entry.objects.get(kind="approval_granted")
    assert (entry.actor, entry.via, entry.why) == (f"rule: {rule.name}", "rule", rule.reason)
    assert from_json(entry.data["rule"]) == read_reason(approval.rule_wording)
    change_rule(rule, at=fleet.now, max_duration_seconds=3)
    approval.refresh_from_db()
    assert sentence(approval.rule_wording).endswith("at most 8 s.")


def test_what_no_rule_matches_waits_for_people_and_writes_nothing(fleet: Fleet) -> None:
    made(event_types=["Reboot"])
    made(enabled=False)
    announced(fleet, DurationInSeconds=-1)
    before = Entry.objects.count()
    assert apply.decide(now=fleet.now) == 0
    assert not Approval.objects.exists()
    assert Entry.objects.count() == before


def test_without_a_rule_in_force_looking_costs_one_query(fleet: Fleet) -> None:
    made(enabled=False)
    made(expires_at=fleet.now + seconds(5))
    announced(fleet, DurationInSeconds=-1)
    fleet.later(10)
    assert len(queries(apply.decide, now=fleet.now)) == 1


def test_looking_costs_the_same_however_many_events_wait(fleet: Fleet) -> None:
    made(event_types=["Reboot"])
    announced(fleet)
    few = len(queries(apply.decide, now=fleet.now))
    fleet.all_say(*[listing(f"0A1B2C3D-0000-4000-8000-{number:012d}") for number in range(9)])
    assert len(queries(apply.decide, now=fleet.now)) == few <= 14


def test_the_first_rule_in_order_decides_until_it_is_moved(fleet: Fleet) -> None:
    made(action="leave", event_types=["Freeze"])
    approving = made()
    announced(fleet)
    assert apply.decide(now=fleet.now) == 0
    rules.move(rule_id=approving.pk, actor=acting(admin()), now=fleet.now, steps=-1)
    assert apply.decide(now=fleet.now) == 1
    assert Approval.objects.get().rule == approving


def test_events_of_one_document_are_judged_together_the_most_urgent_first(fleet: Fleet) -> None:
    made()
    fleet.enrol_set()
    fleet.later(1)
    later = listing(EVENT, resources=("vm1",), not_before=fleet.now + seconds(900))
    sooner = listing(OTHER, resources=("vm2",), not_before=fleet.now + seconds(600))
    fleet.all_say(later, sooner)
    first = Approval.objects.get()
    assert first.event.event_id == OTHER
    # The other one waits, however often it is judged, until the first is over.
    fleet.later(2)
    fleet.advance()
    order = open_order(first)
    fleet.delivered(order)
    fleet.receipt(order)
    fleet.later(5)
    fleet.all_say(later, {**sooner, "EventStatus": "Started", "NotBefore": ""})
    assert Approval.objects.count() == 1
    fleet.later(10)
    fleet.all_say(later)
    assert [one.event.event_id for one in Approval.objects.order_by("pk")] == [OTHER, EVENT]


def test_two_sets_of_one_service_are_judged_together_unless_the_rule_accepts_it(fleet: Fleet) -> None:
    rule = made()
    for name in ("a", "b"):
        fleet.enrol(name, availability_set=name)
        fleet.enrol(f"{name}2", availability_set=name)
    for name in ("a", "b"):
        AvailabilitySet.objects.filter(name=name).update(service="shop")
    fleet.say("a", listing(EVENT, resources=("a",)))
    fleet.say("b", listing(OTHER, resources=("b",)))
    assert Approval.objects.count() == 1
    change_rule(rule, at=fleet.now, accepts=["service-in-flight"])
    fleet.advance()
    (overridden,) = Approval.objects.order_by("pk")[1].overrides
    assert (overridden["code"], overridden["reason"]) == ("service-in-flight", rule.reason)


def test_a_rule_holds_and_a_hold_that_a_person_lifts_stays_lifted(fleet: Fleet) -> None:
    rule = made(action="hold", reason="the database team decides")
    announced(fleet)
    hold = Hold.objects.get()
    assert (hold.rule, hold.reason) == (rule, rule.reason)
    assert sentence(hold.rule_wording) == "Leave it to Azure: every event."
    made(position=1)
    claims.lift(event_id=EVENT, actor=acting(operator()), now=fleet.now)
    fleet.advance()
    assert (Approval.objects.count(), Hold.objects.count()) == (0, 1)


@pytest.mark.parametrize("by_rule", [True, False])
def test_a_withdrawn_decision_is_not_made_again_by_a_rule(fleet: Fleet, by_rule: bool) -> None:
    if by_rule:
        made(action="approve_when_prepared")
    announced(fleet)
    approval = Approval.objects.get() if by_rule else fleet.approve(when=When.PREPARED)
    assert (approval.state, approval.rule is not None) == ("WAITING", by_rule)
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator(), why="not tonight"), now=fleet.now)
    made()
    fleet.advance()
    assert [one.state for one in Approval.objects.all()] == ["WITHDRAWN"]


def test_a_lapsed_decision_of_a_rule_is_not_made_again_when_azure_gives_more_time(fleet: Fleet) -> None:
    made(action="approve_when_prepared")
    fleet.enrol_set()
    fleet.later(1)
    fleet.all_say(listing(not_before=fleet.now + seconds(30)))
    fleet.later(31)
    fleet.advance()
    assert [one.state for one in Approval.objects.all()] == ["LAPSED"]
    fleet.all_say(listing(not_before=fleet.now + seconds(900)))
    fleet.advance()
    assert Approval.objects.count() == 1


def test_one_events_trouble_does_not_keep_the_others_waiting(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    broken = made()
    # A zone that this machine's tables do not know any more.
    Rule.objects.filter(pk=broken.pk).update(
        time_zone="Gone/Away", weekdays=[0], from_time=time(1), event_types=["Reboot"]
    )
    made(event_types=["Freeze"])
    fleet.enrol_set()
    fleet.later(1)
    with caplog.at_level(logging.ERROR):
        fleet.all_say(listing(OTHER, event_type="Reboot", resources=("vm1",)), listing(EVENT, resources=("vm2",)))
    assert Approval.objects.get().event == the_event()
    assert QuarantinedRow.objects.get(what="rules").row_id == the_event(OTHER).pk
    assert "is quarantined" in caplog.text


def test_a_burst_of_reclaimed_spot_machines_is_decided_as_a_whole(fleet: Fleet) -> None:
    made(event_types=["Preempt"], accepts=["lost-for-good"])
    agents = fleet.enrol_set(30)
    fleet.later(1)
    ids = [f"{number:08X}-0000-4000-8000-000000000000" for number in range(25)]
    names = [agent.machine.resource_name for agent in agents]
    fleet.all_say(
        *(
            listing(event_id, event_type="Preempt", resources=(name,), not_before=fleet.now + seconds(30))
            for event_id, name in zip(ids, names, strict=False)
        )
    )
    fleet.later(1)
    fleet.advance()
    approvals = Approval.objects.all()
    assert {approval.event.event_id for approval in approvals} == set(ids)
    assert max(approval.decided_at for approval in approvals) <= fleet.now
    # The first machine that lists an event can pass its approval on.
    assert all(open_order(approval) for approval in approvals)
