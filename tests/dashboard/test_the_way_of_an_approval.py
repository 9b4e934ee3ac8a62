"""What the event's page tells of orders: each one's way, Azure's words, who is next, and what to do by hand."""

from datetime import timedelta
from typing import Any

from django.test import Client

from fleet.models import Approval
from tests import factories
from tests.dashboard.conftest import codes, states, text_of


def test_each_order_is_told_with_its_path_and_who_is_asked_next(
    fleet: factories.Fleet, operator: Client, settings: Any
) -> None:
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


def test_azures_words_are_escaped_and_folded_when_they_are_long(fleet: factories.Fleet, operator: Client) -> None:
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


def test_an_agents_refusal_is_told_in_words(fleet: factories.Fleet, operator: Client) -> None:
    factories.announced(fleet)
    approval = fleet.approve()
    fleet.receipt(factories.open_order(approval), outcome="refused", status=None, reason="bad-signature")
    assert "order-refused" in codes(operator.get(f"/events/{factories.EVENT}/"))


def test_what_was_taken_back_did_not_fail(fleet: factories.Fleet, operator: Client, settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 9
    event = factories.announced(fleet)
    operator.post(f"/events/{event.event_id}/approve/", {"when": "now"})
    operator.post(f"/approvals/{Approval.objects.get().pk}/withdraw/")
    page = operator.get(f"/events/{event.event_id}/?part=decision", headers={"HX-Request": "true"})
    assert "step-taken-back" in codes(page)
    assert "step-failed" not in page.content.decode()
