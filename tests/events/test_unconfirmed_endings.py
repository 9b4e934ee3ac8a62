"""Endings that one answer of one machine does not prove: evictions, and documents that did not advance."""

import pytest

from fleet.models import Entry, ScheduledEvent
from fleet.operations.orders import advance
from tests.factories import EVENT, Fleet, announced, listing, open_order, seconds, the_event

pytestmark = pytest.mark.django_db

OTHERS = ["vm2", "vm3", "vm4", "vm5", "vm6"]


def ending(event: ScheduledEvent) -> tuple[str, str, str | None]:
    event.refresh_from_db()
    return event.status, event.ended_as, event.certainty


def evicted(fleet: Fleet, event_type: str = "Preempt") -> ScheduledEvent:
    """A deleting event of vm1: vm1 falls silent, and the others see the event gone before NotBefore."""
    event = announced(fleet, event_type=event_type, resources=["vm1"], not_before=fleet.now + seconds(900))
    fleet.later(5)
    fleet.all_say(names=OTHERS)
    fleet.tick(61, *OTHERS)
    return event


@pytest.mark.parametrize("event_type", ["Preempt", "Terminate", "preempt", "TERMINATE"])
def test_a_machine_that_is_evicted_early_was_deleted_and_not_saved_by_a_cancellation(event_type: str) -> None:
    event = evicted(Fleet(), event_type)
    assert ending(event) == ("ENDED", "machine_deleted", "inferred")


def test_a_poll_of_the_machine_afterwards_shows_that_the_event_was_cancelled(fleet: Fleet) -> None:
    event = evicted(fleet)
    fleet.later(10)
    fleet.say("vm1")
    assert ending(event)[:2] == ("ENDED", "cancelled")


def test_a_poll_without_anything_new_to_say_shows_it_too(fleet: Fleet) -> None:
    # vm1 never lists the event, so its document does not change when it goes.
    fleet.enrol_set()
    fleet.all_say()
    listed = listing("5", event_type="Preempt", resources=["VM1"], not_before=fleet.now + seconds(900))
    fleet.all_say(listed, names=OTHERS)
    event = ScheduledEvent.objects.get()
    fleet.later(61)
    fleet.all_say(names=OTHERS)
    fleet.heard(*OTHERS)
    fleet.advance()
    assert ending(event)[:2] == ("ENDED", "machine_deleted")
    fleet.tick(5)
    assert ending(event)[:2] == ("ENDED", "cancelled")
    told = Entry.objects.filter(event=event, kind="event_ended").order_by("pk")
    assert [entry.data["ended_as"] for entry in told] == ["machine_deleted", "cancelled"]


def test_a_machine_that_sees_its_own_event_go_was_not_evicted(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Preempt", resources=["vm1"], not_before=fleet.now + seconds(900))
    fleet.later(5)
    fleet.all_say()
    assert ending(event) == ("ENDED", "cancelled", "seen")


def test_a_reboot_whose_machine_falls_silent_is_not_called_a_deletion() -> None:
    assert ending(evicted(Fleet(), "Reboot"))[1] != "machine_deleted"


def test_an_accepted_approval_of_an_eviction_is_not_void(fleet: Fleet) -> None:
    event = announced(fleet, event_type="Preempt", resources=["vm1"], not_before=fleet.now + seconds(900))
    approval = fleet.approve(overrides={"lost-for-good": "it is spot"})
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    fleet.receipt(open_order(approval))
    fleet.later(5)
    fleet.all_say(names=OTHERS)
    fleet.tick(61, *OTHERS)
    approval.refresh_from_db()
    assert (ending(event)[1], approval.state, approval.inferred) == ("machine_deleted", "CONFIRMED", True)


def alone(fleet: Fleet) -> ScheduledEvent:
    """An event that one machine alone lists, at incarnation 5."""
    fleet.enrol("lone", availability_set="standalone:lone")
    fleet.agents["lone"].incarnation = 4
    fleet.say("lone", listing(resources=["lone"]))
    return the_event(EVENT)


@pytest.mark.parametrize("before", [0, 2, 4])
def test_an_empty_answer_that_did_not_advance_ends_nothing_until_the_next_poll(before: int, fleet: Fleet) -> None:
    event = alone(fleet)
    fleet.later(1)
    # The answer comes with incarnation 1, 3 or 5.
    fleet.agents["lone"].incarnation = before
    fleet.say("lone")
    assert ending(event)[0] == "SCHEDULED"
    fleet.tick(3, "lone")
    assert ending(event)[0] == "ENDED"


def test_an_answer_that_runs_backwards_for_one_poll_leaves_no_pair_of_ended_and_reopened(fleet: Fleet) -> None:
    event = alone(fleet)
    fleet.later(1)
    fleet.agents["lone"].incarnation = 1
    fleet.say("lone")
    fleet.later(1)
    fleet.agents["lone"].incarnation = 5
    fleet.say("lone", listing(resources=["lone"]))
    fleet.tick(5, "lone")
    assert ending(event)[0] == "SCHEDULED"
    assert not Entry.objects.filter(event=event, kind__in=["event_ended", "event_reopened"]).exists()


def test_another_live_machine_confirms_an_answer_in_doubt(fleet: Fleet) -> None:
    event = announced(fleet)
    fleet.later(1)
    fleet.agents["vm1"].incarnation = 0
    fleet.all_say()
    assert ending(event)[0] == "ENDED"
