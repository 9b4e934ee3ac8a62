"""Planned approvals: each waits for prepared machines or a time, and is dispatched, delayed or lapses."""

import pytest

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, ScheduledEvent
from fleet.operations import reconcile
from tests.approvals.asking import OTHER, entries, hook, orders, prepared, refused, two_events
from tests.factories import EVENT, Fleet, after, announced, listing, open_order, operator, seconds
from tests.words import code_of, text

pytestmark = pytest.mark.django_db


class TestOnceItIsPrepared:
    def test_it_goes_when_the_last_machine_that_it_hits_is_ready(self, fleet: Fleet, event: ScheduledEvent) -> None:
        approval = fleet.approve(when=When.PREPARED)
        assert (approval.state, approval.when, orders(approval)) == ("WAITING", "prepared", 0)
        prepared(fleet, "vm1")
        fleet.advance()
        assert after(approval).state == "WAITING"
        prepared(fleet, "vm2")
        fleet.advance()
        assert after(approval).state == "GRANTED"
        assert approval.granted_at == fleet.now
        assert open_order(approval).machine.resource_name == "vm1"
        (line,) = entries("approval_due")
        assert text(line) == "Every affected machine is prepared. Drydock sends the approval to Azure."
        assert (line.before, line.after) == ({"approval": "WAITING"}, {"approval": "GRANTED"})

    def test_a_machine_without_hooks_is_prepared_as_long_as_it_is_live(self, fleet: Fleet) -> None:
        announced(fleet)
        approval = fleet.approve(when=When.PREPARED)
        hook(fleet, "vm1", EVENT, "end", "nothing")
        prepared(fleet, "vm2")
        fleet.tick(70, "vm2", "vm3", "vm4")
        assert after(approval).state == "WAITING"
        fleet.heard()
        fleet.advance()
        assert after(approval).state == "GRANTED"

    def test_still_preparing_or_failed_takes_no_reason_for_waiting_is_what_was_decided(self, fleet: Fleet) -> None:
        # A name without an agent is never prepared.
        announced(fleet, resources=("vm1", "vm2", "ghost"))
        hook(fleet, "vm1", EVENT, "begin", "running")
        hook(fleet, "vm2", EVENT, "end", "failed")
        assert refused(fleet.approve).code == "guarded"
        approval = fleet.approve(when=When.PREPARED)
        assert approval.overrides == []
        for prepares in ((), ("vm1", "vm2")):
            prepared(fleet, *prepares)
            fleet.advance()
            assert after(approval).state == "WAITING"

    def test_prepared_already_goes_at_once(self, fleet: Fleet, event: ScheduledEvent) -> None:
        prepared(fleet, "vm1", "vm2")
        approval = fleet.approve(when=When.PREPARED)
        reconcile.advance_new_approval(approval_id=approval.pk, now=fleet.now, via="celery")
        assert after(approval).state == "RELAYING"
        assert orders(approval) == 1


class TestAtATime:
    def test_it_goes_when_the_time_has_come(self, fleet: Fleet, event: ScheduledEvent) -> None:
        due = fleet.now + seconds(120)
        approval = fleet.approve(when=When.TIME, due_at=due)
        assert (approval.state, approval.due_at) == ("WAITING", due)
        assert text(entries("approval_planned")[0]) == f"otto approved: start at {due:%Y-%m-%d %H:%M:%S} UTC. “go”"
        fleet.tick(119)
        assert after(approval).state == "WAITING"
        fleet.later(1)
        fleet.advance()
        assert after(approval).state == "GRANTED"

    @pytest.mark.parametrize("after", [-1, 0, 900, 1000, None])
    def test_only_a_time_between_now_and_not_before(self, fleet: Fleet, after: int | None) -> None:
        event = announced(fleet)
        assert event.not_before == fleet.now + seconds(899)
        due = None if after is None else fleet.now + seconds(after)
        error = refused(lambda: fleet.approve(when=When.TIME, due_at=due))
        assert error.code == "validation" and error.reason.code.startswith("due-time-")
        # A time means nothing to the other ways.
        assert fleet.approve(due_at=due).due_at is None

    def test_new_guard_delays_a_planned_approval_and_is_recorded(self, fleet: Fleet) -> None:
        two_events(fleet)
        planned = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
        first = fleet.approve(OTHER)
        fleet.tick(61)
        assert after(planned).state == "WAITING"
        Approval.objects.filter(pk=first.pk).update(state="LAPSED")
        # As the entry would make it that goes with such a step.
        ScheduledEvent.objects.update(next_check_at=None)
        fleet.advance()
        assert after(planned).state == "GRANTED"


@pytest.mark.parametrize("when", [When.PREPARED, When.TIME])
class TestItsEnd:
    def planned(self, fleet: Fleet, when: When) -> Approval:
        announced(fleet)
        return fleet.approve(when=when, due_at=fleet.now + seconds(600))

    def test_it_counts_as_decided_and_lapses_at_not_before(self, fleet: Fleet, when: When) -> None:
        approval = self.planned(fleet, when)
        error = refused(lambda: fleet.approve(by=operator("olga")))
        assert (error.code, error.details["by"]) == ("already-decided", "otto")
        assert error.reason.values["state"] == "WAITING"
        # No reconciliation ran for a quarter of an hour: an approval that came due meanwhile is too late.
        fleet.tick(901)
        assert (after(approval).state, code_of(approval.reason)) == ("LAPSED", "lapsed-waiting")
        assert approval.closed_at == fleet.now

    @pytest.mark.parametrize("code", ["started-before-sent", "ended-before-sent"])
    def test_it_is_void_once_the_event_started_or_is_gone(self, fleet: Fleet, when: When, code: str) -> None:
        approval = self.planned(fleet, when)
        fleet.later(30)
        started = listing(status="Started", resources=["vm1", "vm2"])
        fleet.all_say(*([started] if code == "started-before-sent" else []))
        fleet.advance()
        assert (after(approval).state, code_of(approval.reason)) == ("VOID", code)
