"""What the event's page shows of a decision: each order, Azure's answers, what stays up, and what can be undone."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.operations.approvals.conditions import withdraw
from fleet.projections.desk import queue
from fleet.projections.events.detail import event_detail
from fleet.wording.card import card_words
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import codes, states, text_of
from tests.factories import Fleet, listing, seconds

OTHER = "0A1B2C3D-0000-4000-8000-00000000000F"


def test_machines_that_another_event_has_taken_do_not_stay_up(fleet: Fleet, operator: Client) -> None:
    fleet.enrol_set(6)
    reboot = listing(event_type="Reboot", resources=("vm1",), status="Started")
    fleet.all_say(reboot, listing(OTHER, resources=("vm2",), not_before=fleet.now + seconds(900)))
    (waiting,) = queue.decision_queue(now=fleet.now).waiting
    assert (waiting.blast.stay_up, waiting.blast.total) == (4, 6)
    # It takes nothing from itself twice.
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None and detail.blast.stay_up == 5
    # The other open event is linked.
    assert f'href="/events/{factories.EVENT}/"' in operator.get(f"/events/{OTHER}/").content.decode()


@pytest.mark.parametrize(
    ("left", "kind", "offered"), [(300, "Freeze", True), (61, "Freeze", False), (50, "Preempt", False)]
)
def test_undoing_is_promised_only_where_the_backend_keeps_the_promise(
    fleet: Fleet, operator: Client, settings: Any, left: int, kind: str, offered: bool
) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3.0
    fleet.enrol_set()
    fleet.all_say(listing(event_type=kind, resources=("vm1",), not_before=fleet.now + seconds(left)))
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert (detail.card.undo.seconds > 0) is offered
    assert detail.card.undo.in_a_hurry is not offered
    reasons = {"lost-for-good": "gone anyway"} if kind == "Preempt" else {}
    until = detail.card.undo.offered_until
    if until is not None:
        # Any click until then can be undone, and any that takes a second on its way.
        fleet.now = until + seconds(1)
        fleet.heard()
    approval = fleet.approve(when=When.UNDO, overrides=reasons)
    assert (approval.state == "WAITING") is (left > 60)


def test_each_order_is_listed_with_its_path_and_the_next_machine(fleet: Fleet, operator: Client, settings: Any) -> None:
    # So long that the moment is still ahead on a busy machine, too.
    settings.ORDER_ANSWER_SECONDS = 300
    factories.announced(fleet)
    approval = fleet.approve()
    fleet.delivered(factories.open_order(approval))
    page = operator.get(f"/events/{factories.EVENT}/")
    shown = text_of(page)
    at = fleet.now + timedelta(seconds=300)
    assert "next-asked" in codes(page) and f"{at:%H:%M:%S}" in shown
    assert "DELIVERED" in states(page) and "celery" in shown
    assert 'id="by-hand"' not in page.content.decode()


def test_azures_words_are_escaped_and_folded_when_they_are_long(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet)
    approval = fleet.approve()
    order = factories.open_order(approval)
    order.azure_body = ""
    fleet.receipt(order, status=400)
    order.refresh_from_db()
    order.azure_body = '<script>alert("1")</script>' + "x" * 200
    order.save()
    page = operator.get(f"/events/{factories.EVENT}/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert f"<summary>{len(order.azure_body)} characters</summary>" in page


def test_refusal_of_an_agent_is_shown(fleet: Fleet, operator: Client) -> None:
    factories.announced(fleet)
    approval = fleet.approve()
    fleet.receipt(factories.open_order(approval), outcome="refused", status=None, reason="bad-signature")
    assert "order-refused" in codes(operator.get(f"/events/{factories.EVENT}/"))


def test_the_card_says_what_happens_without_a_decision_once_it_cannot_be_undone(fleet: Fleet, settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3
    factories.announced(fleet)
    for when, said in ((When.UNDO, ""), (When.NOW, "Azure starts the event after")):
        approval = fleet.approve(factories.EVENT, when=when)
        detail = event_detail(event_id=factories.EVENT, now=fleet.now)
        assert detail is not None
        assert card_words(detail.card, API).without_a_decision.startswith(said)
        if when is When.UNDO:
            assert card_words(detail.card, API).without_a_decision == ""
            withdraw(approval_id=approval.pk, actor=factories.acting(factories.operator(), why=""), now=fleet.now)
