"""An EventId reported by many machines is one event, and its state follows from what they list."""

import pytest

from fleet.models import DocumentBody, Entry, Observation, ScheduledEvent, Sighting
from fleet.operations.machines import decommission
from fleet.projections.desk import queue
from tests.factories import (
    EVENT,
    Fleet,
    acting,
    admin,
    after,
    announced,
    freeze_cancelled,
    freeze_completed,
    listing,
    seconds,
    the_event,
)

pytestmark = pytest.mark.django_db


def kinds(event: ScheduledEvent) -> list[str]:
    return list(Entry.objects.filter(event=event).order_by("id").values_list("kind", flat=True))


def test_one_event_id_from_six_machines_is_one_event_with_six_sightings(fleet: Fleet) -> None:
    event = announced(fleet)
    assert ScheduledEvent.objects.count() == 1
    assert Sighting.objects.filter(event=event).count() == 6
    assert (event.status, event.version, event.watched) == ("SCHEDULED", 1, True)
    assert (event.resources, event.notice_seconds) == (["vm1", "vm2"], 899)
    # Every document is kept as received, and its body once.
    assert Observation.objects.filter(kind="document").count() == 12
    assert len(set(Observation.objects.values_list("document", flat=True))) == 2


def test_the_live_migration_goes_from_scheduled_to_started_to_completed() -> None:
    event = freeze_completed(Fleet())
    assert (event.status, event.ended_as, event.certainty) == ("ENDED", "completed", "seen")
    assert not event.approved_elsewhere
    found = kinds(event)
    assert found[0] == "event_seen" and "approval_confirmed" in found
    assert (found.count("event_started"), found.count("event_ended")) == (1, 1)


def test_it_ends_only_when_no_live_machine_lists_it_any_more(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(30)
    fleet.all_say(names=["vm1", "vm2", "vm3", "vm4", "vm5"])
    assert the_event().status == "SCHEDULED"
    fleet.heard()
    fleet.say("vm6")
    assert the_event().status == "ENDED"


def test_gone_before_not_before_without_a_gap_is_cancelled_and_certain() -> None:
    event = freeze_cancelled(Fleet())
    assert (event.ended_as, event.certainty) == ("cancelled", "seen")


def test_gone_with_a_gap_in_the_incarnations_is_cancelled_or_missed(fleet: Fleet) -> None:
    announced(fleet)
    for agent in fleet.agents.values():
        agent.incarnation += 1
    fleet.later(60)
    fleet.all_say()
    assert (the_event().ended_as, the_event().certainty) == ("cancelled_or_missed", "inferred")


def test_no_witness_left_alive_never_ends_an_event(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(3600)
    fleet.advance()
    event = the_event()
    assert (event.status, event.watched) == ("SCHEDULED", False)
    assert "event_unwatched" in kinds(event)


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot", "Redeploy", "Terminate"])
def test_an_event_whose_witnesses_have_been_gone_for_a_day_ends_as_unknown(fleet: Fleet, event_type: str) -> None:
    announced(fleet, event_type=event_type, not_before=fleet.now + seconds(10 * 86400))
    fleet.later(86_000)
    fleet.advance()
    assert (the_event().status, the_event().watched) == ("SCHEDULED", False)
    fleet.later(1_000)
    fleet.advance()
    event = the_event()
    assert (event.status, event.ended_as, event.certainty) == ("ENDED", "unknown", "inferred")
    assert kinds(event).count("event_ended") == 1
    # It stays so until a machine that is heard lists it again.
    fleet.later(60)
    fleet.heard("vm6", poll_at=fleet.now - seconds(86_000))
    fleet.advance()
    assert the_event().status == "ENDED"
    fleet.later(60)
    fleet.all_say(listing(event_type=event_type, resources=["vm1", "vm2"], not_before=fleet.now + seconds(86400)))
    assert (the_event().status, the_event().ended_as) == ("SCHEDULED", "")


def test_revoked_and_gone_witnesses_together_end_it_too(fleet: Fleet) -> None:
    announced(fleet)
    for name in ("vm1", "vm2", "vm3"):
        decommission.revoke(machine_id=fleet.agents[name].machine.pk, actor=acting(admin(), why="sold"), now=fleet.now)
    fleet.later(90_000)
    fleet.advance()
    assert (the_event().status, the_event().ended_as) == ("ENDED", "unknown")


@pytest.mark.parametrize("rest", [{}, {"Resources": [], "EventType": "", "NotBefore": "", "EventSource": None}])
def test_fields_that_a_later_listing_leaves_out_keep_their_values(fleet: Fleet, rest: dict[str, object]) -> None:
    before = announced(fleet, event_type="Redeploy")
    stated = ("event_type", "source", "description", "duration_seconds", "not_before", "resources", "version")
    values = {name: getattr(before, name) for name in stated}
    fleet.later(5)
    fleet.all_say({"EventId": EVENT, "EventStatus": "Scheduled", **rest})
    after = the_event()
    assert {name: getattr(after, name) for name in stated} == values
    # What a listing states counts.
    fleet.later(5)
    fleet.say("vm1", {"EventId": EVENT, "EventStatus": "Scheduled", "EventType": "Reboot"})
    assert (the_event().event_type, the_event().not_before) == ("Reboot", values["not_before"])


def test_a_machine_that_was_deleted_by_preempt_is_inferred_once_all_witnesses_are_silent(fleet: Fleet) -> None:
    fleet.enrol("spot")
    fleet.say("spot", listing(event_type="Preempt", resources=["spot"], not_before=fleet.now + seconds(30)))
    fleet.later(120)
    fleet.advance()
    assert (the_event().status, the_event().watched) == ("SCHEDULED", False)
    fleet.later(600)
    fleet.advance()
    event = the_event()
    assert (event.status, event.ended_as, event.certainty) == ("ENDED", "machine_deleted", "inferred")
    # An eviction policy that deallocates: the machine is started again hours later.
    fleet.later(7200)
    fleet.all_say()
    fleet.advance()
    event = the_event()
    assert (event.status, event.ended_as) == ("ENDED", "cancelled_or_missed")


def test_an_eviction_seen_after_its_not_before_needs_no_decision(fleet: Fleet) -> None:
    fleet.enrol("spot")
    fleet.say("spot", listing(event_type="Preempt", resources=["spot"], not_before=fleet.now - seconds(5)))
    fleet.advance()
    event = the_event()
    assert (event.status, event.notice_seconds) == ("SCHEDULED", 0)
    assert queue.decision_queue(now=fleet.now).waiting == ()
    fleet.later(700)
    fleet.advance()
    assert the_event().ended_as == "machine_deleted"


def test_newer_document_that_lists_it_again_reopens_it_and_records_that(fleet: Fleet) -> None:
    event = freeze_cancelled(fleet)
    fleet.later(5)
    fleet.say("vm3", listing(resources=["vm1", "vm2"]))
    assert (after(event).status, event.ended_as, event.ended_at) == ("SCHEDULED", "", None)
    assert "event_reopened" in kinds(event)


def test_started_before_not_before_without_our_approval_is_approved_elsewhere(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(30)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert the_event().approved_elsewhere


def test_it_may_begin_at_started(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    fleet.all_say(listing(status="Started", event_type="Reboot"))
    event = the_event()
    assert (event.status, event.notice_seconds, event.not_before) == ("STARTED", None, None)
    assert kinds(event)[:2] == ["event_seen", "event_started"]


def test_the_next_fault_domain_is_another_event_with_its_own_decision(fleet: Fleet) -> None:
    first = announced(fleet, resources=("vm1",))
    fleet.approve()
    fleet.later(60)
    fleet.all_say(listing(status="Started", resources=("vm1",)))
    fleet.later(60)
    # The first is gone and the next is there in the same document.
    fleet.all_say(listing("NEXT-DOMAIN", resources=("vm2",), not_before=fleet.now + seconds(900)))
    assert (after(first).status, first.ended_as) == ("ENDED", "completed")
    following = the_event("NEXT-DOMAIN")
    assert (following.status, following.approvals.count()) == ("SCHEDULED", 0)


def test_an_incarnation_that_restarts_keeps_the_event_and_its_decision(fleet: Fleet) -> None:
    event = announced(fleet)
    approval = fleet.approve()
    fleet.later(5)
    for agent in fleet.agents.values():
        agent.incarnation = 0
    fleet.all_say(listing(resources=("vm1", "vm2")))
    event.refresh_from_db()
    approval.refresh_from_db()
    assert (event.status, event.watched, approval.state) == ("SCHEDULED", True, "RELAYING")
    assert "event_reopened" not in kinds(event)


def test_the_order_of_an_events_moments_never_reverses(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(60)
    fleet.all_say(listing(status="Started", resources=("vm1", "vm2")))
    # The clocks of all machines were set back by two minutes.
    for name in fleet.agents:
        fleet.heard(name)
        fleet.say(name, at=fleet.now - seconds(120))
    fleet.tick(5)
    event = the_event()
    assert event.status == "ENDED"
    assert event.first_seen_at <= event.started_at <= event.ended_at


def test_several_events_in_one_document_are_kept_apart(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    other = "0BB8CD25-5BF9-4D96-85F8-3E5B9B45F2B6"
    fleet.all_say(listing(), listing(other, event_type="Reboot", resources=["vm2"]))
    # Ids are compared without case.
    fleet.say("vm1", listing(EVENT.lower()), listing(other, event_type="Reboot", resources=["vm2"]))
    assert ScheduledEvent.objects.count() == 2
    assert EVENT.lower() in Sighting.objects.values_list("spelled", flat=True)
    fleet.later(10)
    fleet.all_say(listing(other, event_type="Reboot", resources=["vm2"]))
    assert the_event(EVENT).status == "ENDED"
    assert the_event(other).status == "SCHEDULED"


def test_version_moves_only_with_what_operators_decide_on(fleet: Fleet) -> None:
    event = announced(fleet)
    fleet.later(5)
    fleet.all_say(listing(resources=["vm1", "vm2"], Description="Another text."))
    assert (after(event).version, event.description) == (1, "Another text.")
    fleet.later(5)
    fleet.all_say(listing(resources=["vm1", "vm2"], not_before=fleet.now + seconds(300)))
    assert after(event).version == 2
    assert "event_changed" in kinds(event)


def test_a_machine_that_comes_back_and_still_lists_it_reopens_it(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(61)
    fleet.all_say(names=["vm1", "vm2", "vm3", "vm4", "vm5"])
    assert the_event().status == "ENDED"
    # Its document has not changed, so it has nothing new to report: being heard is all there is.
    fleet.tick(5, "vm6")
    assert the_event().status == "SCHEDULED"


@pytest.mark.parametrize("year", ["0001", "1999", "2100", "9999"])
def test_a_not_before_that_no_calendar_of_a_fleet_shows_counts_as_not_stated(year: str) -> None:
    event = announced(Fleet(), NotBefore=f"{year}-12-31T23:59:59Z")
    assert (event.status, event.not_before, event.notice_seconds) == ("SCHEDULED", None, None)
    body = DocumentBody.objects.order_by("-first_received_at").first()
    assert [flag["code"] for flag in body.flags] == ["not-before-out-of-bounds"]
    assert year in bytes(body.body).decode()


def test_a_machine_that_dies_with_its_clock_ahead_keeps_no_event_open(fleet: Fleet) -> None:
    fleet.enrol_set()
    fleet.all_say(listing())
    fleet.say("vm1", listing(status="Started"), at=fleet.now + seconds(10**8))
    # It falls silent for good; everybody else sees the event gone.
    fleet.later(700)
    fleet.all_say(names=["vm2", "vm3", "vm4", "vm5", "vm6"])
    fleet.tick(30, "vm2", "vm3", "vm4", "vm5", "vm6")
    assert the_event().status == "ENDED"


def test_event_with_an_unusable_id_is_recorded_once(fleet: Fleet) -> None:
    fleet.enrol_set()
    fleet.all_say(listing(event_id="a/b"))
    assert not ScheduledEvent.objects.exists()
    assert [flag["code"] for flag in Entry.objects.get(kind="document_unreadable").data["flags"]] == [
        "event-id-unusable"
    ]
