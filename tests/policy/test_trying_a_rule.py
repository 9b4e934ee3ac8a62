"""Dry runs of rules: they list past events that a rule would have decided, the real outcome, and what is unknown."""

from datetime import time
from typing import Any

import pytest

from fleet.domain.policy.rules import StandingRule
from fleet.models import Entry, Rule, ScheduledEvent
from fleet.models.policy import rule_of
from fleet.operations.approvals import claims
from fleet.projections.policy.dry_run import DryRun, dry_run
from tests import factories
from tests.factories import Fleet, acting, listing, operator, seconds
from tests.plans import queries
from tests.policy.conftest import made, window
from tests.words import sentence


def event_id(number: int) -> str:
    return f"0A1B2C3D-0000-4000-8000-{number:012d}"


def rule(**fields: Any) -> StandingRule:
    return StandingRule(**{"name": "tried", "reason": "r", "action": "approve_now", **fields})


def tell(fleet: Fleet, number: int, *, approved: bool = False, **fields: Any) -> str:
    """One event of the set from its first sighting to its end, a minute after the one before."""
    name = event_id(number)
    fleet.later(60)
    due = fleet.now + seconds(900)
    said = {"resources": ("vm1",), "not_before": due, **fields}
    fleet.all_say(listing(name, **said))
    fleet.later(5)
    if approved:
        order = factories.open_order(fleet.approve(name))
        fleet.delivered(order)
        fleet.receipt(order)
        fleet.all_say(listing(name, **{**said, "status": "Started"}))
        fleet.later(5)
    fleet.all_say()
    return name


@pytest.fixture
def history(fleet: Fleet) -> Fleet:
    """Four freezes (two short, one of them approved), a reboot, a redeploy, and a failure that began as Started."""
    fleet.enrol_set()
    tell(fleet, 1, approved=True)
    tell(fleet, 2)
    tell(fleet, 3, DurationInSeconds=30)
    tell(fleet, 4, DurationInSeconds=-1)
    tell(fleet, 5, event_type="Reboot", EventSource="User")
    tell(fleet, 6, event_type="Redeploy", EventSource="User")
    fleet.later(60)
    fleet.all_say(listing(event_id(7), status="Started"))
    return fleet


def woulds(found: DryRun) -> dict[int, str]:
    return {int(event.event_id[-12:]): event.would.value for event in found.events}


def test_dry_run_compares_its_counts_with_real_decisions(history: Fleet) -> None:
    before = Entry.objects.count()
    found = dry_run(rule=rule(event_types=("Freeze",), max_duration_seconds=8), now=history.now)
    assert sentence(found.sentence) == (
        "Would have approved 2 of 7; 1 of them was approved by a user;"
        " 1 more match, but a guard would have left them to users."
    )
    assert woulds(found) == {1: "approve", 2: "approve", 7: "guarded"}
    first = found.events[-1]
    assert (first.approved_by, first.approval_state, first.ended_as) == ("otto", "CONFIRMED", "completed")
    assert (found.events[-2].approved_by, found.events[-2].ended_as) == ("", "cancelled")
    assert "has started" in sentence(found.events[0].sentence)
    assert (found.considered, found.matched, found.agreed, found.more) == (7, 3, 1, False)
    assert "past-presence" in [each.code for each in found.unknown]
    assert (Entry.objects.count(), Rule.objects.count()) == (before, 0)


def test_a_saved_rule_is_tried_at_its_place_as_if_it_were_on(history: Fleet) -> None:
    made(name="users first", sources=["User"], action="leave")
    row = made(enabled=False, accepts=["lost-for-good"], expires_at=history.now + seconds(1))
    found = dry_run(rule=rule_of(row), now=history.now + seconds(2))
    assert (found.earlier, woulds(found)[5]) == (2, "earlier")
    assert "The earlier rule “users first”" in next(sentence(e.sentence) for e in found.events if e.would == "earlier")
    row.position = 0
    moved = rule_of(row)
    # A rule without a position counts as the last.
    assert dry_run(rule=moved, now=history.now).earlier == 2
    Rule.objects.filter(name="users first").update(enabled=False)
    assert dry_run(rule=rule_of(row), now=history.now).earlier == 0


def test_hours_notice_and_windows_are_those_of_then(history: Fleet) -> None:
    first = ScheduledEvent.objects.get(event_id=event_id(1))
    minute = first.first_seen_at.time().replace(second=0)
    until = (first.first_seen_at + seconds(60)).time().replace(second=0)
    only_then = rule(from_time=minute, until_time=until)
    assert set(woulds(dry_run(rule=only_then, now=history.now + seconds(7200)))) == {1}
    assert woulds(dry_run(rule=rule(min_notice_seconds=901), now=history.now)) == {}
    assert len(woulds(dry_run(rule=rule(min_notice_seconds=890), now=history.now))) == 6
    # A window that is made now was not there then.
    window(at=history.now, from_time=time(0))
    assert woulds(dry_run(rule=rule(event_types=("Reboot",)), now=history.now)) == {5: "approve"}
    tell(history, 8, event_type="Reboot")
    assert woulds(dry_run(rule=rule(event_types=("Reboot",)), now=history.now))[8] == "guarded"


def test_what_was_under_way_then_would_have_made_it_wait(history: Fleet) -> None:
    history.all_say()
    history.later(60)
    under_way = listing(event_id(8), resources=("vm1",), not_before=history.now + seconds(900))
    history.all_say(under_way)
    history.approve(event_id(8))
    history.later(5)
    history.all_say(under_way, listing(event_id(9), resources=("vm2",), not_before=history.now + seconds(900)))
    claims.hold(event_id=event_id(9), actor=acting(operator(), why="wait"), now=history.now)
    found = dry_run(rule=rule(event_types=("Freeze",), max_duration_seconds=8), now=history.now)
    assert woulds(found)[9] == "later"
    assert found.events[0].held_by == "otto"
    assert "Would have approved 4 of 9; 1 of them once other events were over; 2 of them were approved" in sentence(
        found.sentence
    )


def test_accepted_guards_hold_and_leave_are_counted_separately(history: Fleet) -> None:
    assert woulds(dry_run(rule=rule(sources=("User",)), now=history.now)) == {5: "approve", 6: "guarded"}
    accepting = rule(sources=("User",), accepts=("lost-for-good",))
    assert woulds(dry_run(rule=accepting, now=history.now)) == {5: "approve", 6: "approve"}
    held = dry_run(rule=rule(action="hold", event_types=("Reboot",)), now=history.now)
    assert (held.hold, sentence(held.sentence)) == (1, "Would have left 1 of 7 to Azure.")
    left = dry_run(rule=rule(action="leave"), now=history.now)
    assert (left.leave, sentence(left.sentence)) == (7, "Would have left 7 of 7 to users.")


def test_dry_run_is_limited_by_time_omits_drills_and_states_an_empty_result(history: Fleet) -> None:
    third = ScheduledEvent.objects.get(event_id=event_id(3)).first_seen_at
    sixth = ScheduledEvent.objects.get(event_id=event_id(6)).first_seen_at
    found = dry_run(rule=rule(), now=history.now, since=third, until=sixth)
    assert set(woulds(found)) == {3, 4, 5}
    ScheduledEvent.objects.filter(event_id=event_id(4)).update(drill=True)
    assert dry_run(rule=rule(), now=history.now).considered == 6
    nothing = dry_run(rule=rule(), now=history.now, until=third - seconds(9999))
    assert sentence(nothing.sentence) == "No event is stored for this time."


def test_it_costs_the_same_however_long_the_history(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    tell(fleet, 1, approved=True)

    few = len(queries(dry_run, rule=rule(), now=fleet.now))
    for number in range(2, 5):
        tell(fleet, number, approved=number == 3)
    assert len(queries(dry_run, rule=rule(), now=fleet.now)) == few == 7
