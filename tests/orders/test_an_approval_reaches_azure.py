"""Path of an approval: it is offered, delivered, answered and confirmed, or ends in another known state."""

from functools import partial

import pytest

from fleet.models import Approval, Entry, Order, ScheduledEvent
from fleet.operations import reconcile
from fleet.operations.machines import decommission
from fleet.operations.orders import advance
from tests import factories
from tests.factories import Fleet, accepted, after, announced, listing, lost_a_document, open_order, seconds, the_event
from tests.words import code_of, text

pytestmark = pytest.mark.django_db


def relayed(fleet: Fleet) -> Approval:
    """An approval whose first order vm1 has."""
    if not fleet.agents:
        announced(fleet)
    approval = fleet.approve()
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    fleet.delivered(open_order(approval))
    approval.refresh_from_db()
    return approval


def test_usual_path_is_recorded_step_by_step(fleet: Fleet) -> None:
    approval = accepted(fleet)
    order = approval.orders.get()
    assert (approval.state, approval.accepted_by) == ("ACCEPTED", order.machine)
    assert (order.state, order.azure_status, order.delivered_by) == ("ANSWERED", 200, "celery")
    fleet.later(5)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", False)
    kinds = list(Entry.objects.filter(approval=approval).order_by("id").values_list("kind", flat=True))
    steps = "approval_granted order_offered order_delivered order_answered approval_accepted approval_confirmed"
    assert kinds == steps.split()


def test_accepted_may_wait_beyond_not_before_for_other_tenants(fleet: Fleet) -> None:
    approval = accepted(fleet, not_before=fleet.now + seconds(60))
    fleet.later(50)
    fleet.heard()
    fleet.later(30)
    fleet.advance()
    assert after(approval).state == "ACCEPTED"


def test_after_some_silence_the_next_machine_is_asked_and_a_receipt_of_the_first_still_counts(fleet: Fleet) -> None:
    approval = relayed(fleet)
    fleet.later(2)
    fleet.advance()
    assert Order.objects.count() == 1
    fleet.later(2)
    fleet.advance()
    first, second = Order.objects.order_by("offered_at")
    assert (first.state, first.machine.resource_name) == ("SUPERSEDED", "vm1")
    assert (second.state, second.machine.resource_name) == ("OFFERED", "vm2")
    assert Entry.objects.filter(approval=approval, kind="order_superseded").count() == 1
    fleet.receipt(first)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, first.azure_status, second.state) == ("SUPERSEDED", 200, "CANCELLED")
    assert after(approval).state == "ACCEPTED"


def test_a_machine_that_is_no_longer_live_is_not_waited_for(fleet: Fleet) -> None:
    approval = relayed(fleet)
    decommission.revoke(
        machine_id=fleet.agents["vm1"].machine.pk, actor=factories.acting(factories.admin()), now=fleet.now
    )
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="beat")
    assert open_order(approval).machine.resource_name == "vm2"


def test_live_machines_in_resources_are_asked_first_then_the_others_that_list_it(fleet: Fleet) -> None:
    announced(fleet, resources=("vm5", "vm3"))
    approval = fleet.approve()
    fleet.advance()
    for _ in range(5):
        fleet.tick(4)
    asked = Order.objects.order_by("offered_at").values_list("machine__resource_name", flat=True)
    assert list(asked) == ["vm5", "vm3", "vm1", "vm2", "vm4", "vm6"]
    assert after(approval).state == "RELAYING"


def test_an_order_of_a_slow_commit_is_not_superseded_before_its_machine_could_have_it(fleet: Fleet) -> None:
    announced(fleet)
    # The transaction that decided began now and is committed five seconds later.
    approval = fleet.approve()
    fleet.tick(5)
    order = approval.orders.get()
    assert (order.state, order.offered_at) == ("OFFERED", fleet.now)
    fleet.tick(4)
    assert list(approval.orders.order_by("offered_at").values_list("state", flat=True)) == ["SUPERSEDED", "OFFERED"]


def test_an_order_of_a_long_tick_counts_from_when_it_is_written(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    fleet.advance()
    fleet.later(4)
    fleet.heard()
    moments = iter([0.0])
    monkeypatch.setattr(reconcile, "monotonic", lambda: next(moments, 5.5))
    fleet.advance()
    assert open_order(approval).offered_at == fleet.now + seconds(5)


def test_a_no_from_azure_asks_the_next_and_a_no_from_all_is_refused(fleet: Fleet) -> None:
    approval = relayed(fleet)
    for name in ("vm1", "vm2", "vm3", "vm4", "vm5", "vm6"):
        order = open_order(approval)
        assert order.machine.resource_name == name
        fleet.receipt(order, status=400)
        fleet.later(1)
        fleet.advance()
    assert after(approval).state == "REFUSED"
    assert Entry.objects.filter(approval=approval, kind="approval_refused").count() == 1


def test_later_from_azure_is_no_refusal(fleet: Fleet) -> None:
    approval = relayed(fleet)
    for wait in (3, 4, 6, 11):
        fleet.receipt(open_order(approval), status=503, posts=1)
        fleet.tick(wait)
    assert after(approval).state == "RELAYING"
    assert open_order(approval).machine.resource_name == "vm5"


def test_not_before_without_an_answer_lapses_and_expires_the_order(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(30))
    approval = fleet.approve()
    fleet.tick(31, "vm1")
    assert after(approval).state == "LAPSED"
    assert approval.orders.get().state == "EXPIRED"
    # A later receipt that says nothing of Azure changes no state.
    fleet.receipt(approval.orders.get(), outcome="refused", status=None, reason="expired")
    assert after(approval).state == "LAPSED"
    assert Entry.objects.filter(approval=approval, kind="late_receipt").count() == 1


@pytest.mark.parametrize("outage", [40, 300])
def test_after_an_outage_nothing_lapses_before_the_machine_that_was_asked_has_told_everything(
    outage: int, fleet: Fleet
) -> None:
    announced(fleet, not_before=fleet.now + seconds(30))
    approval = fleet.approve()
    # No machine was heard since, as when Postgres is unavailable: the order's delivery was not recorded either.
    fleet.later(outage)
    fleet.advance()
    assert after(approval).state in ("GRANTED", "RELAYING")
    fleet.receipt(approval.orders.get())
    assert after(approval).state == "ACCEPTED"
    lost_a_document(fleet)
    fleet.all_say()
    assert after(approval).state == "CONFIRMED"


def test_a_machine_that_fell_silent_is_not_waited_for(fleet: Fleet) -> None:
    announced(fleet, not_before=fleet.now + seconds(30))
    approval = fleet.approve()
    fleet.later(601)
    fleet.advance()
    assert after(approval).state == "LAPSED"


def test_an_event_that_came_and_went_in_an_outage_is_not_void_before_the_asked_machine_has_told_everything(
    fleet: Fleet,
) -> None:
    approval = relayed(fleet)
    fleet.later(20)
    fleet.heard("vm1", poll_at=fleet.now - seconds(19))
    lost_a_document(fleet)
    fleet.all_say(names=["vm2", "vm3", "vm4", "vm5", "vm6"])
    assert after(approval).state == "RELAYING"
    fleet.receipt(approval.orders.order_by("offered_at").first() or approval.orders.get())
    fleet.say("vm1")
    assert after(approval).state == "CONFIRMED"
    assert the_event().status == "ENDED"


def test_an_event_that_ends_meanwhile_makes_the_approval_void(fleet: Fleet, approval: Approval) -> None:
    fleet.later(1)
    fleet.all_say()
    fleet.tick(10, "vm1")
    assert after(approval).state == "VOID"
    assert approval.orders.get().state == "CANCELLED"


@pytest.mark.parametrize(("later", "names"), [(1, ()), (20, ("vm2",))])
def test_started_without_us_is_void_but_not_while_a_receipt_may_be_on_its_way(
    fleet: Fleet, approval: Approval, later: int, names: tuple[str, ...]
) -> None:
    fleet.later(later)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]), names=names)
    assert after(approval).state in ("GRANTED", "RELAYING")
    assert not the_event().approved_elsewhere
    fleet.receipt(approval.orders.order_by("offered_at")[0])
    assert after(approval).state == "CONFIRMED"
    assert not the_event().approved_elsewhere


@pytest.mark.parametrize(
    ("is_delivered", "receipt", "later", "state", "code"),
    [
        # No machine asked Azure.
        (False, ("refused", "already-started"), 1, ("VOID", False), "started-without-approval"),
        # The delivery of the order is not confirmed.
        (False, None, 10, ("VOID", True), "started-with-order-unconfirmed"),
        # The machine asked and received no answer.
        (True, ("failed", "timed out"), 10, ("CONFIRMED", True), "started-after-azure-was-asked"),
        # From NotBefore on, Azure starts it without us.
        (True, None, 901, ("LAPSED", True), "started-late-without-receipt"),
    ],
)
def test_start_without_an_answer_of_azure_is_concluded_and_claimed_as_ours_only_if_it_may_be(
    fleet: Fleet, is_delivered: bool, receipt: tuple[str, str] | None, later: float, state: tuple[str, bool], code: str
) -> None:
    announced(fleet)
    approval = relayed(fleet) if is_delivered else fleet.approve()
    if receipt is not None:
        fleet.receipt(open_order(approval), outcome=receipt[0], status=None, reason=receipt[1])
    fleet.later(later)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert ((after(approval).state, approval.inferred), code_of(approval.reason)) == (state, code)
    assert the_event().approved_elsewhere == (code == "started-without-approval")


def test_an_interrupted_request_is_confirmed_by_inference_also_when_the_event_has_ended_meanwhile(fleet: Fleet) -> None:
    approval = relayed(fleet)
    fleet.later(1)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    fleet.later(1)
    fleet.all_say()
    assert (the_event().status, after(approval).state) == ("ENDED", "RELAYING")
    fleet.receipt(open_order(approval), outcome="failed", status=None, reason="the agent stopped while it asked")
    assert (after(approval).state, approval.inferred) == ("CONFIRMED", True)


def test_what_an_order_of_ours_may_have_started_is_not_told_as_approved_elsewhere(fleet: Fleet) -> None:
    approval = relayed(fleet)
    fleet.later(1)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert after(approval).state == "RELAYING"
    assert not the_event().approved_elsewhere
    fleet.later(10)
    fleet.advance()
    assert after(approval).state == "CONFIRMED"
    assert not the_event().approved_elsewhere
    told = text(Entry.objects.get(kind="event_started"))
    assert "without an approval" not in told


def test_only_one_reconciles_and_the_ticker_stays_away_while_beat_is_alive(fleet: Fleet, event: ScheduledEvent) -> None:
    assert fleet.advance().ran
    quiet = partial(reconcile.run_if_quiet, reconcile.RUN, reconcile.advance, quiet_seconds=4)
    assert quiet(now=fleet.later(2)) is None
    assert quiet(now=fleet.later(4)).ran
