"""Late receipts: Azure's 200 to one of our orders corrects a closed approval, whenever it arrives."""

import pytest

from fleet.audit.reports import event_report
from fleet.models import Approval, Entry, Order
from fleet.operations.orders import advance
from tests.factories import EVENT, Fleet, after, announced, listing, operator, seconds, the_event

pytestmark = pytest.mark.django_db

STARTED = listing(status="Started", resources=["vm1", "vm2"])


def kinds(approval: Approval) -> list[str]:
    return list(Entry.objects.filter(approval=approval).order_by("id").values_list("kind", flat=True))


def test_void_after_a_start_becomes_confirmed(fleet: Fleet, approval: Approval) -> None:
    order = approval.orders.get()
    fleet.later(10)
    # Before the delivery of the order was confirmed.
    fleet.all_say(STARTED)
    assert after(approval).state == "VOID"
    fleet.later(2)
    fleet.receipt(order)
    assert (after(approval).state, approval.inferred, approval.accepted_by) == ("CONFIRMED", False, order.machine)
    assert kinds(approval)[-3:] == ["late_receipt", "approval_corrected", "approval_confirmed"]
    assert not the_event().approved_elsewhere
    # The report of the event names our approval.
    verdict = event_report(event_id=EVENT, now=fleet.now).verdict.values
    assert (verdict["elsewhere"], verdict["decided"]) == (False, "accepted")


def test_lapsed_is_accepted_and_follows_the_event_from_there(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(30))
    approval = fleet.approve()
    order = approval.orders.get()
    fleet.tick(31, "vm1")
    assert after(approval).state == "LAPSED"
    fleet.receipt(order)
    assert (after(approval).state, approval.closed_at, approval.reason) == ("ACCEPTED", None, "")
    fleet.later(5)
    fleet.all_say(STARTED)
    assert after(approval).state == "CONFIRMED"


def test_refused_by_all_others_is_accepted(fleet: Fleet, approval: Approval) -> None:
    order = approval.orders.get()
    Order.objects.filter(pk=order.pk).update(state="SUPERSEDED", closed_at=fleet.now)
    Approval.objects.filter(pk=approval.pk).update(state="REFUSED", closed_at=fleet.now)
    fleet.receipt(order)
    assert (after(approval).state, approval.closed_at) == ("ACCEPTED", None)


def test_an_event_that_azure_cancelled_after_its_200_stays_void_and_says_why(fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    order = approval.orders.get()
    fleet.later(5)
    fleet.all_say()
    fleet.tick(10)
    assert after(approval).state == "VOID"
    fleet.receipt(order)
    assert (after(approval).state, the_event().ended_as) == ("VOID", "cancelled")
    assert "cancelled-after-200" in approval.reason
    assert approval.accepted_by == order.machine


def test_an_event_that_was_approved_again_keeps_one_live_approval(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(600))
    old = fleet.approve()
    order = old.orders.get()
    Approval.objects.filter(pk=old.pk).update(state="REFUSED", closed_at=fleet.now)
    Order.objects.filter(pk=order.pk).update(state="CANCELLED", closed_at=fleet.now)
    new = fleet.approve(by=operator("olga"))
    fleet.receipt(order)
    assert (after(old).state, old.accepted_by) == ("REFUSED", order.machine)
    assert after(new).state in ("GRANTED", "RELAYING")


def test_a_confirmation_by_inference_becomes_certain(fleet: Fleet, approval: Approval) -> None:
    order = approval.orders.get()
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    fleet.delivered(order)
    fleet.later(10)
    fleet.all_say(STARTED)
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", True)
    fleet.receipt(order)
    assert (after(approval).state, approval.inferred, approval.accepted_by) == ("CONFIRMED", False, order.machine)
