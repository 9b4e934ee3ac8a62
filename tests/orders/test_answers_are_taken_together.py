"""What many machines answer at once is taken by one statement a table, and says what one answer after another says."""

from typing import Any

import pytest

from fleet.models import Approval, Entry, Order, driver
from tests.factories import Fleet, after, announced, approved_apart, open_order

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
