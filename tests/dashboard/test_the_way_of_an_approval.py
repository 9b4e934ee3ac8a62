"""What the event's page tells of orders: each one's way, Azure's words, who is next, and what to do by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.models import Approval
from tests import factories
from tests.dashboard.conftest import text_of


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
    assert f"vm2 is asked at {at:%H:%M:%S} UTC if vm1 stays silent." in shown
    assert "Delivered" in shown and "celery" in shown
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
    shown = text_of(operator.get(f"/events/{factories.EVENT}/"))
    assert "Refused by the agent: the order's signature is not valid." in shown


def test_without_a_live_agent_the_page_has_commands_to_copy(fleet: factories.Fleet, operator: Client) -> None:
    fleet.now = datetime.now(UTC) - timedelta(minutes=5)
    factories.announced(fleet, not_before=fleet.now + timedelta(minutes=15))
    page = operator.get(f"/events/{factories.EVENT}/")
    shown = text_of(page)
    assert "What you can do by hand" in shown
    assert "No live machine of the set lists the event" in shown
    assert "curl --silent" in shown and "Invoke-RestMethod" in shown
    assert 'data-copy="by-hand-linux"' in page.content.decode()


@pytest.mark.parametrize(
    "fields", [{"event_type": "Reboot", "resources": tuple(f"vm{number}" for number in range(1, 7))}, {}]
)
def test_what_was_taken_back_did_not_fail(
    fleet: factories.Fleet, operator: Client, fields: dict[str, object], settings: Any
) -> None:
    settings.UNDO_SECONDS = 9
    event = factories.announced(fleet, **fields)
    operator.post(f"/events/{event.event_id}/approve/", {"when": "now"})
    operator.post(f"/approvals/{Approval.objects.get().pk}/withdraw/")
    page = operator.get(f"/events/{event.event_id}/?part=decision", headers={"HX-Request": "true"})
    assert "Taken back" in text_of(page)
    assert "step-failed" not in page.content.decode()
