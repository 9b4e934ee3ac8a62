"""Approvals: only a permitted user approves, only in time, and only once for each event."""

from functools import partial

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, Entry, Order
from fleet.operations.orders import advance
from tests.approvals.asking import refused
from tests.approvals.racing import thread_group
from tests.factories import EVENT, Fleet, announced, listing, open_order, operator, seconds, viewer
from tests.searches import searched
from tests.words import sentence

pytestmark = pytest.mark.django_db


def test_the_grant_writes_the_approval_the_first_order_and_both_entries(fleet: Fleet) -> None:
    event = announced(fleet)
    approval = fleet.approve(comment="before the shift ends")
    order = open_order(approval)
    assert (approval.state, approval.comment, approval.event_version) == ("GRANTED", "before the shift ends", 1)
    assert (order.state, order.machine.resource_name, order.expires_at) == ("OFFERED", "vm1", event.not_before)
    kinds = set(Entry.objects.filter(approval=approval).values_list("kind", flat=True))
    assert kinds == {"approval_granted", "order_offered"}


def test_a_viewer_may_not_approve(fleet: Fleet) -> None:
    announced(fleet)
    assert refused(lambda: fleet.approve(by=viewer())).code == "not-permitted"
    assert not Approval.objects.exists()


def test_second_approval_is_refused_with_the_first_approver_and_time(fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve(by=operator("olga"))
    error = refused(lambda: fleet.approve(by=operator("otto")))
    assert error.code == "already-decided"
    assert (error.details["by"], error.details["approval"]) == ("olga", approval.pk)
    assert error.details["at"] == fleet.now.isoformat().replace("+00:00", "Z")
    assert "olga" in sentence(error)


def test_approval_after_not_before_is_refused_as_too_late(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(30))
    fleet.later(31)
    assert refused(fleet.approve).code == "too-late"


def test_a_started_event_needs_no_approval(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(status="Started"))
    error = refused(fleet.approve)
    assert error.code == "too-late" and error.reason.code == "event-not-open"


def test_an_event_that_changed_since_one_looked_is_refused_with_its_new_version(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(1)
    fleet.all_say(listing(resources=["vm1", "vm2", "vm3"]))
    error = refused(lambda: fleet.approve(expected_version=1))
    assert (error.code, error.details["version"]) == ("version-changed", 2)


def test_without_a_live_machine_approval_is_blocked(fleet: Fleet) -> None:
    announced(fleet)
    fleet.later(90)
    error = refused(fleet.approve)
    assert error.code == "guarded"
    assert [guard["code"] for guard in error.details["guards"]] == ["no-live-machine"]


def test_an_unknown_event_is_an_unknown_event(fleet: Fleet) -> None:
    assert refused(lambda: fleet.approve("NO-SUCH-EVENT")).code == "unknown-event"


def test_the_database_itself_holds_one_live_approval_and_one_open_order(fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    order = open_order(approval)
    with pytest.raises(IntegrityError, match="one_live_approval_per_event"), transaction.atomic():
        Approval.objects.create(
            event=approval.event, state="GRANTED", via="page", event_version=1, decided_at=fleet.now
        )
    with pytest.raises(IntegrityError, match="one_open_order_per_approval"), transaction.atomic():
        Order.objects.create(
            id="6f9ea0f2-9b5c-4c43-8e7c-6dd8a3a7a111",
            approval=approval,
            machine=order.machine,
            state="DELIVERED",
            spelled=EVENT,
            offered_at=fleet.now,
        )


@pytest.mark.django_db(transaction=True)
@searched("rounds", share=3, whole=12, variable="RACE_ROUNDS")
def test_two_operators_at_once_make_one_approval(rounds: int) -> None:
    fleet = Fleet(now=timezone.now())
    people = [operator(f"operator{number}") for number in range(4)]
    fleet.enrol_set(3)
    for number in range(rounds):
        event_id = f"00000000-0000-4000-8000-{number:012}"
        fleet.all_say(listing(event_id, not_before=fleet.now + seconds(900)))
        with thread_group(len(people)) as racing:
            results = racing.at_once(*[partial(fleet.approve, event_id, by=by) for by in people])
        winners = [result for result in results if isinstance(result, Approval)]
        losers = [result for result in results if isinstance(result, Refused)]
        assert len(winners) == 1
        assert {loser.code for loser in losers} == {"already-decided"}
        assert all(loser.details["by"] == winners[0].decided_by.username for loser in losers if winners[0].decided_by)
        assert Order.objects.filter(approval__event__event_id=event_id).count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_workers_two_beats_and_a_ticker_leave_one_open_order() -> None:
    fleet = Fleet(now=timezone.now())
    fleet.enrol_set(4)
    announced(fleet)
    approval = fleet.approve()
    fleet.advance()
    for _ in range(8):
        fleet.later(4)
        fleet.heard()
        worker = partial(advance.advance_approval, approval_id=approval.pk, now=fleet.now, via="celery")
        ticks = [partial(fleet.advance, via=via) for via in ("beat", "beat", "ticker")]
        with thread_group(5) as racing:
            racing.at_once(worker, worker, *ticks)
        assert Order.objects.filter(approval=approval, state__in=("OFFERED", "DELIVERED")).count() == 1
    # One machine was asked after the other, each once in a round.
    asked = list(Order.objects.order_by("offered_at").values_list("machine__resource_name", flat=True))
    assert asked[:4] == ["vm1", "vm2", "vm3", "vm4"]
    assert len(asked) == 9
