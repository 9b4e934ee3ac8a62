"""Drill sequence: like an event, a drill is announced, approved, relayed, started and ended; then it ends itself."""

import re
from datetime import timedelta
from functools import partial

import pytest
from drydock_agent import wire

from fleet.domain import drills
from fleet.domain.intake import EVENT_ID
from fleet.models import Entry, LatestDocument, Rehearsal, ScheduledEvent, Sighting
from fleet.operations import drills as drilling
from fleet.operations import waves
from fleet.operations.approvals import conditions
from fleet.projections.events.detail import event_detail
from fleet.wording.drills import in_drill
from tests.approvals.asking import codes, hook, refused
from tests.drills.walking import Walk, answer, begin, hooks, say, the_order, waiting
from tests.factories import Fleet, acting, after, announced, approver, listing, operator, seconds
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db


def texts(walk: Walk) -> list[str]:
    return [text(entry) for entry in Entry.objects.filter(event=walk.event).order_by("at", "pk")]


def test_it_is_announced_approved_started_and_ended(fleet: Fleet) -> None:
    walk = Walk(fleet).announced()
    assert (walk.event.status, walk.event.version, walk.event.resources) == ("SCHEDULED", 1, ["vm1"])
    hooks(fleet, "vm1", walk.event.event_id, "prepare")
    approval = walk.approved()
    assert approval.state == "ACCEPTED"
    for name in ("vm1", "vm2", "vm3"):
        start = the_order(fleet, name, "start")
        assert start.event_id == walk.event.event_id
        answer(fleet, name, start)
    walk.all_say("started")
    assert (after(approval).state, walk.event.status) == ("CONFIRMED", "STARTED")
    fleet.later(9)
    walk.all_say("gone", "over")
    assert (walk.event.status, walk.event.ended_as, walk.event.certainty) == ("ENDED", "completed", "seen")
    assert walk.reconciled(5).closed_at is None, "its recover hooks have not ended"
    hooks(fleet, "vm1", walk.event.event_id, "recover")
    assert walk.reconciled(5).outcome == "completed"
    assert not waiting(fleet, "vm1")


def test_a_plan_that_ends_with_the_event_does_not_keep_the_drill_open(fleet: Fleet) -> None:
    walk = Walk(fleet).announced()
    hook(fleet, "vm1", walk.event.event_id, "plan", "planned", planned_at=fleet.now + seconds(60))
    walk.all_say("started").all_say("gone", "over")
    assert walk.reconciled(30).closed_at is not None


def test_every_line_of_its_timeline_says_that_it_is_a_drill_and_claims_nothing_of_azure() -> None:
    walk = Walk(Fleet(), comment="as Azure does it").announced()
    walk.approved()
    walk.all_say("started").all_say("gone", "over")
    walk.reconciled(30)
    lines = texts(walk)
    assert len(lines) > 8
    assert all(line.startswith("Drill: ") for line in lines)
    assert not [line for line in lines if "Azure" in line.partition("“")[0]]
    assert not Entry.objects.filter(event=walk.event, actor="Azure").exists()


def test_the_words_of_people_stay_as_they_are() -> None:
    assert in_drill("otto approved: start now. “Azure is slow”") == "Drill: otto approved: start now. “Azure is slow”"
    assert in_drill("Drydock sends the approval to Azure.") == ("Drill: Drydock sends the approval to the rehearsal.")
    assert in_drill("Azure answered 200 to vm1.") == "Drill: The rehearsal answered 200 to vm1."


def test_unapproved_drill_starts_at_not_before() -> None:
    walk = Walk(Fleet(), notice_seconds=30).announced()
    walk.fleet.later(30)
    walk.all_say("started").all_say("gone", "over")
    assert walk.reconciled(30).outcome == "not_approved"


def test_a_machine_whose_agent_knows_no_drills_is_named_with_the_reason(fleet: Fleet) -> None:
    walk = Walk(fleet)
    answer(fleet, "vm2", the_order(fleet, "vm2", "rehearse"), outcome=wire.REFUSED, reason="not-listed")
    assert "Drill: Machine vm2 does not take part: the agent is too old for drills." in texts(walk)
    assert not waiting(fleet, "vm2")


def test_a_machine_that_is_not_live_is_left_out_from_the_beginning(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    fleet.later(120)
    fleet.heard("vm2", "vm3")
    walk = Walk(fleet)
    assert walk.event.resources == ["vm2"], "the first live machine"
    row = Rehearsal.objects.get(machine=fleet.agents["vm1"].machine)
    assert sentence(row.left_out) == "its agent was late when the drill started"
    assert not waiting(fleet, "vm1")


def test_when_no_machine_takes_part_it_is_over_at_once(fleet: Fleet) -> None:
    walk = Walk(fleet)
    for name in fleet.agents:
        answer(fleet, name, the_order(fleet, name, "rehearse"), outcome=wire.REFUSED, reason="not-listed")
    drill = walk.reconciled()
    assert (drill.outcome, walk.event.status) == ("nobody", "ENDED")


def test_it_ends_by_itself_when_the_agents_vanish(fleet: Fleet) -> None:
    walk = Walk(fleet, notice_seconds=30, duration_seconds=5).announced()
    walk.approved()
    fleet.later(30 + 5 + drills.GRACE.total_seconds())
    fleet.advance()
    assert (walk.drill.outcome, walk.event.status) == ("unfinished", "ENDED")
    assert Sighting.objects.filter(event=walk.event, gone_at=None).count() == 0
    say(fleet, "vm1", walk.began["vm1"], "started")
    assert walk.event.status == "ENDED", "a late word reopens nothing"


def test_user_stops_the_drill_and_machines_are_notified(fleet: Fleet) -> None:
    walk = Walk(fleet).announced("vm1", "vm2")
    approval = fleet.approve(walk.event.event_id)
    drilling.stop(drill_id=walk.drill_id, actor=acting(operator(), why="enough"), now=fleet.later(1))
    assert (walk.event.status, after(approval).state) == ("ENDED", "VOID")
    assert [(order.drill or {})["step"] for order in waiting(fleet, "vm1")] == ["cancel"]
    assert waiting(fleet, "vm3") == [], "it never had the drill"
    again = refused(lambda: drilling.stop(drill_id=walk.drill_id, actor=acting(operator()), now=fleet.now))
    assert again.code == "too-late"


def test_the_usual_guards_and_second_persons_are_asked_for_as_in_earnest(fleet: Fleet) -> None:
    walk = Walk(fleet, event_type="Redeploy", machines=["vm1", "vm2", "vm3"]).announced()
    assert codes(refused(lambda: fleet.approve(walk.event.event_id))) == ["lost-for-good"]
    approval = fleet.approve(walk.event.event_id, overrides={"lost-for-good": "it is a drill"})
    assert approval.state == "PROPOSED"
    conditions.consent(approval_id=approval.pk, actor=acting(approver()), now=fleet.now)
    assert after(approval).state == "GRANTED"


def test_its_id_is_a_fit_address_and_its_bounds_are_the_agents() -> None:
    event = begin(Fleet()).event
    assert re.fullmatch(EVENT_ID, event.event_id) and event.event_id.startswith(wire.DRILL_PREFIX)
    assert drills.NOTICE_SECONDS[1] == wire.MAX_DRILL_NOTICE_SECONDS
    assert drills.DURATION_SECONDS[1] == wire.MAX_DRILL_DURATION_SECONDS


def test_what_makes_no_sense_is_refused_and_without_a_live_machine_there_is_no_drill(fleet: Fleet) -> None:
    bounds = [("notice_seconds", 14), ("notice_seconds", 3601), ("duration_seconds", 0), ("duration_seconds", 601)]
    for field, value in [("event_type", "Party"), ("machines", ["vm9"]), *bounds]:
        assert refused(partial(begin, fleet, **{field: value})).code == "validation"
    fleet.later(700)
    assert refused(partial(begin, fleet)).code == "no-live-machine"
    assert not ScheduledEvent.objects.exists()


class TestRealEvents:
    def test_one_that_comes_ends_the_drill_at_once_and_is_decided_without_it(self, fleet: Fleet) -> None:
        walk = Walk(fleet).announced()
        drilled = fleet.approve(walk.event.event_id)
        event = announced(fleet)
        fleet.advance()
        assert (walk.drill.outcome, walk.event.status, after(drilled).state) == ("overtaken", "ENDED", "VOID")
        assert "cancel" in [(order.drill or {}).get("step") for order in waiting(fleet, "vm3")]
        approval = fleet.approve(event.event_id)
        (order,) = [order for order in waiting(fleet, "vm1") if order.drill is None]
        assert order.event_id == event.event_id and approval.state == "GRANTED"

    def test_documents_say_nothing_of_a_drill(self, fleet: Fleet) -> None:
        walk = Walk(fleet).announced()
        fleet.later(1)
        fleet.all_say()
        assert Sighting.objects.filter(event=walk.event, gone_at=None).count() == 3
        fleet.later(1)
        fleet.all_say(listing(walk.event.event_id, event_type="Terminate", resources=["vm3"]))
        assert (walk.event.event_type, walk.event.resources) == ("Freeze", ["vm1"])
        assert ScheduledEvent.objects.count() == 1

    def test_machine_facts_do_not_change(self, fleet: Fleet) -> None:
        fleet.enrol_set(3)
        before = list(LatestDocument.objects.order_by("pk").values())
        walk = Walk(fleet).announced()
        walk.approved()
        walk.all_say("started").all_say("gone", "over")
        assert list(LatestDocument.objects.order_by("pk").values()) == before

    def test_a_machine_that_sees_something_real_first_ends_it_for_all(self, fleet: Fleet) -> None:
        walk = Walk(fleet).announced("vm1")
        walk.all_say("gone", "real-event")
        assert walk.reconciled(1).outcome == "overtaken"


def test_a_machine_speaks_for_its_own_rehearsal_only_and_a_replayed_report_changes_nothing(fleet: Fleet) -> None:
    walk = Walk(fleet).announced("vm1")
    say(fleet, "vm2", walk.began["vm1"], "started")
    assert walk.event.status == "SCHEDULED"
    assert Entry.objects.filter(kind="report_unknown", machine=fleet.agents["vm2"].machine).exists()
    agent = fleet.agents["vm1"]
    walk.all_say("started")
    agent.seq -= 2
    say(fleet, "vm1", walk.began["vm1"], "gone", "over")
    assert walk.event.status == "STARTED"


def test_the_order_to_approve_says_that_it_is_a_drills(fleet: Fleet) -> None:
    walk = Walk(fleet).announced()
    fleet.approve(walk.event.event_id)
    order = the_order(fleet, "vm1", "approve")
    assert (order.event_id, order.drill) == (walk.event.event_id, {"step": "approve"})
    assert order.expires_at is not None and order.expires_at - fleet.now > timedelta(seconds=200)


def test_drill_has_no_manual_steps_and_no_wave_takes_it(fleet: Fleet) -> None:
    walk = Walk(fleet).announced()
    fleet.approve(walk.event.event_id)
    fleet.later(200)
    fleet.advance()
    found = event_detail(event_id=walk.event.event_id, now=fleet.now)
    assert found is not None and found.by_hand is None
    wave = partial(waves.begin, events=[walk.event.event_id], actor=acting(operator()), now=fleet.now)
    assert code_of(refused(wave)) == "wave-takes-no-drill"
