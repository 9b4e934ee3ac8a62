"""Azure's 200 to a StartRequest: it is a promise reported by one machine, and Azure may break it. Later observations
decide the outcome, and Drydock claims nothing that it does not know.
"""

import pytest

from fleet.models import Entry
from fleet.operations.orders import advance
from tests.factories import Fleet, accepted, after, announced, listing, lost_a_document, open_order, seconds, the_event
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db


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
    lost_a_document(fleet)
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
    kinds = list(Entry.objects.filter(approval=approval).order_by("id").values_list("kind", flat=True))
    assert kinds[-2:] == ["approval_void", "approval_confirmed"]


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
