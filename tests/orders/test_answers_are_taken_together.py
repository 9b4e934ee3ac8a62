"""What many machines answer at once is taken by one statement a table, and says what one answer after another says."""

from typing import Any

import pytest

from fleet.audit.reports import event_report
from fleet.models import Approval, Entry, Order, driver
from fleet.operations.orders import advance
from tests import factories
from tests.factories import Fleet, accepted, after, announced, approved_apart, listing, open_order, seconds, the_event
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db
IDS = [f"0A1B2C3D-0000-4000-8000-0000000002{number:02d}" for number in range(6)]
WAY = ["approval_granted", "order_offered", "order_delivered", "order_answered", "approval_accepted"]


def states(approvals: list[Approval]) -> list[str]:
    return list(
        Approval.objects.filter(pk__in=[one.pk for one in approvals]).order_by("pk").values_list("state", flat=True)
    )


def told(approval: Approval) -> list[str]:
    return list(Entry.objects.filter(approval=approval).order_by("pk").values_list("kind", flat=True))


def test_many_answers_are_three_statements_and_each_has_its_lines(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    approvals = approved_apart(fleet, IDS)
    written: list[int] = []
    update = driver.update

    def counted(rows: Any, *args: Any, **rest: Any) -> Any:
        written.append(len(rows))
        return update(rows, *args, **rest)

    monkeypatch.setattr(driver, "update", counted)
    fleet.record(*(fleet.answer(open_order(approval)) for approval in approvals))
    # The orders, and the approvals twice: under way, and accepted. What follows finds nothing to do.
    assert [count for count in written if count] == [6, 6, 6]
    assert states(approvals) == ["ACCEPTED"] * 6
    assert [told(approval) for approval in approvals] == [WAY] * 6
    assert set(Order.objects.values_list("state", "delivered_by", "azure_status")) == {("ANSWERED", "celery", 200)}
    for approval in approvals:
        assert after(approval).accepted_by_id == approval.orders.get().machine_id


def test_answers_of_different_kinds_in_one_commit_are_each_taken_as_they_are(fleet: Fleet) -> None:
    approvals = approved_apart(fleet, IDS)
    orders = [open_order(approval) for approval in approvals]
    fleet.delivered(orders[1])
    fleet.record(
        fleet.answer(orders[0]),
        fleet.answer(orders[1]),
        fleet.answer(orders[2], status=400, reason="gone"),
        fleet.answer(orders[3], outcome="refused", status=None, reason="expired"),
        fleet.answer(orders[4], status=429, posts=2),
    )
    found = [Order.objects.get(pk=order.pk) for order in orders]
    answered = [("answered", 200), ("answered", 200), ("answered", 400), ("refused", None), ("answered", 429)]
    assert [(order.outcome, order.azure_status) for order in found] == [*answered, ("", None)]
    assert [order.state for order in found] == ["ANSWERED"] * 5 + ["OFFERED"]
    assert (found[2].reason, found[4].posts) == ("gone", 2)
    assert states(approvals)[:2] == ["ACCEPTED", "ACCEPTED"]
    assert told(approvals[1]) == WAY


def asked_twice(fleet: Fleet) -> tuple[Approval, Order, Order]:
    """An approval, the order of the machine that was asked first, and that of the one that was asked instead."""
    announced(fleet)
    approval = fleet.approve()
    fleet.advance()
    fleet.later(4)
    fleet.advance()
    first, second = Order.objects.order_by("offered_at")
    return approval, first, second


@pytest.mark.parametrize("together", [True, False])
def test_two_answers_for_one_approval_count_the_same_in_one_commit_and_in_two(fleet: Fleet, together: bool) -> None:
    approval, first, second = asked_twice(fleet)
    answers = [fleet.answer(first), fleet.answer(second)]
    for deliveries in [answers] if together else [[one] for one in answers]:
        fleet.record(*deliveries)
    orders = Order.objects.order_by("offered_at").values_list("state", "outcome", "azure_status")
    assert list(orders) == [("SUPERSEDED", "answered", 200), ("CANCELLED", "answered", 200)]
    ends = ["late_receipt", "order_cancelled", "approval_accepted", "late_receipt"]
    assert told(approval) == [*WAY[:2], "order_superseded", "order_offered", *ends]
    assert after(approval).state == "ACCEPTED"


def test_an_order_that_is_answered_twice_in_one_commit_is_answered_once(fleet: Fleet) -> None:
    approvals = approved_apart(fleet, IDS)
    order = open_order(approvals[0])
    agent = fleet.agents["m0"]
    first, second = fleet.answer(order), fleet.answer(order, status=500)
    fleet.record(agent.delivery(*first.reports, *second.reports))
    assert (after(order).state, order.azure_status, told(approvals[0])) == ("ANSWERED", 200, WAY)


def test_answers_to_two_orders_of_an_approval_keep_their_order(fleet: Fleet) -> None:
    approval, first, second = asked_twice(fleet)
    twice = [fleet.answer(first), fleet.answer(first)]
    fleet.record(fleet.agents["vm1"].delivery(*twice[0].reports, *twice[1].reports), fleet.answer(second))
    assert (after(approval).state, approval.accepted_by_id) == ("ACCEPTED", first.machine_id)
    assert told(approval).count("approval_accepted") == 1


def test_machine_cannot_answer_the_order_of_another(fleet: Fleet) -> None:
    approvals = approved_apart(fleet, IDS)
    theirs = fleet.answer(open_order(approvals[0]))
    fleet.record(fleet.agents["m1"].delivery(*theirs.reports))
    assert told(approvals[0]) == WAY[:2]
    assert Entry.objects.filter(kind="late_receipt").count() == 1


def test_what_has_moved_since_it_was_read_is_taken_as_it_is_by_then(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    approvals = approved_apart(fleet, IDS)
    orders = [open_order(approval) for approval in approvals]
    update = driver.update

    def meanwhile(rows: Any, *args: Any, **rest: Any) -> Any:
        # As no one does who knows that the event is locked.
        Order.objects.filter(pk=orders[0].pk, state="OFFERED").update(state="DELIVERED")
        Approval.objects.filter(pk=approvals[1].pk, state="GRANTED").update(state="RELAYING")
        return update(rows, *args, **rest)

    monkeypatch.setattr(driver, "update", meanwhile)
    fleet.record(*(fleet.answer(order) for order in orders))
    assert set(Order.objects.values_list("state", "azure_status")) == {("ANSWERED", 200)}
    assert states(approvals) == ["ACCEPTED"] * 6
    assert [kind for kind in told(approvals[0]) if kind != "order_delivered"] == [WAY[0], WAY[1], *WAY[3:]]
    assert told(approvals[1]) == WAY


# Azure's 200 to a StartRequest is a promise reported by one machine; Azure may break it, and later reports decide.


def test_gone_with_no_document_left_out_is_a_cancellation_and_no_confirmation(fleet: Fleet) -> None:
    approval = accepted(fleet)
    fleet.later(5)
    fleet.all_say()
    assert (after(approval).state, approval.inferred) == ("VOID", False)
    assert code_of(approval.reason) == "cancelled-after-200"
    assert the_event().ended_as == "cancelled"


def test_gone_with_a_document_left_out_confirms_by_inference(fleet: Fleet) -> None:
    approval = accepted(fleet)
    fleet.later(5)
    factories.lost_a_document(fleet)
    fleet.all_say()
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", True)


def test_a_late_document_that_shows_the_start_corrects_it(fleet: Fleet) -> None:
    approval = accepted(fleet)
    fleet.later(5)
    fleet.all_say(names=["vm2", "vm3", "vm4", "vm5", "vm6"])
    fleet.later(601)
    fleet.all_say(names=["vm2", "vm3", "vm4", "vm5", "vm6"])
    fleet.advance()
    assert after(approval).state == "VOID"
    # The machine itself comes back and delivers what it had read.
    fleet.say("vm1", listing(status="Started", resources=["vm1", "vm2"]), at=fleet.now - seconds(600))
    fleet.heard()
    fleet.say("vm1")
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", False)
    assert told(approval)[-2:] == ["approval_void", "approval_confirmed"]


def test_without_a_start_one_other_machine_asks_after_a_minute_and_once_more_at_the_end(fleet: Fleet) -> None:
    approval = accepted(fleet, not_before=fleet.now + seconds(600))
    first = approval.orders.get().machine
    fleet.tick(59)
    assert approval.orders.count() == 1
    fleet.later(2)
    fleet.advance()
    second = open_order(approval)
    assert second.machine != first
    assert "vm2. Azure answered 200, but" in text(Entry.objects.filter(kind="order_offered").latest("id"))
    fleet.receipt(second)
    assert after(approval).state == "ACCEPTED"
    fleet.tick(470)
    assert approval.orders.count() == 2
    fleet.tick(20)
    third = open_order(approval)
    assert third.machine not in (first, second.machine)
    for _ in range(3):
        fleet.tick(40)
    # Other tenants may have to agree: that it does not start is no failure.
    assert (approval.orders.count(), after(approval).state) == (3, "ACCEPTED")


def test_a_machine_that_answers_200_for_azure_is_not_the_only_one_believed(fleet: Fleet) -> None:
    approval = accepted(fleet)
    fleet.tick(61)
    honest = open_order(approval)
    fleet.receipt(honest)
    fleet.later(1)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert after(approval).state == "CONFIRMED"


def test_set_of_one_gets_no_second_order(fleet: Fleet) -> None:
    fleet.enrol("lone", availability_set="standalone:lone")
    announced(fleet, names=["lone"], resources=["lone"])
    approval = fleet.approve()
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    fleet.receipt(open_order(approval))
    fleet.tick(100)
    assert approval.orders.count() == 1


@pytest.mark.parametrize("status", [202, 429, 500, 503])
def test_ambiguous_answer_before_the_start_makes_the_approval_void_and_inferred(status: int, fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    fleet.receipt(open_order(approval), status=status)
    fleet.later(1)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    fleet.tick(7)
    assert (after(approval).state, approval.inferred) == ("VOID", True)
    assert code_of(approval.reason) == "started-and-nobody-knows"
    assert str(status) in sentence(approval.reason)
    assert not the_event().approved_elsewhere
    assert "without an approval" not in text(Entry.objects.get(kind="event_started"))


# Late receipts: Azure's 200 to one of our orders corrects a closed approval, whenever it arrives.


STARTED = listing(status="Started", resources=["vm1", "vm2"])


def test_void_after_a_start_becomes_confirmed(fleet: Fleet, approval: Approval) -> None:
    order = approval.orders.get()
    fleet.later(10)
    # Before the delivery of the order was confirmed.
    fleet.all_say(STARTED)
    assert after(approval).state == "VOID"
    fleet.later(2)
    fleet.receipt(order)
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", False)
    assert approval.accepted_by == order.machine
    assert told(approval)[-3:] == ["late_receipt", "approval_corrected", "approval_confirmed"]
    assert not the_event().approved_elsewhere
    # The report of the event names our approval.
    verdict = event_report(event_id=factories.EVENT, now=fleet.now).verdict.values
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
    new = fleet.approve(by=factories.operator("olga"))
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
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", False)
    assert approval.accepted_by == order.machine
