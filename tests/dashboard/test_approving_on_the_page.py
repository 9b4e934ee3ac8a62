"""Approving in a browser: a plain form first, a part of the page where htmx is there."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.models import Approval
from tests import factories
from tests.dashboard.conftest import logged_in, text_of

HTMX = {"HX-Request": "true"}


def approve(client: Client, event_id: str, htmx: bool = False, **fields: Any) -> Any:
    return client.post(f"/events/{event_id}/approve/", fields, headers=HTMX if htmx else {})


def test_a_plain_form_approves_and_comes_back_to_the_event(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    answer = operator.post(
        f"/events/{event.event_id}/approve/", {"comment": "drained", "expected_version": event.version}, follow=True
    )
    assert answer.redirect_chain == [(f"/events/{event.event_id}/", 302)]
    shown = text_of(answer)
    assert "Approved. It is on its way to Azure." in shown
    assert "by otto" in shown
    assert "drained" in shown
    approval = Approval.objects.get()
    assert (approval.via, approval.comment, approval.event_version) == ("page", "drained", event.version)


def test_with_htmx_the_answer_is_the_decision_panel_with_its_steps(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    answer = approve(operator, event.event_id, htmx=True, expected_version=event.version)
    assert answer.status_code == 200
    body = answer.content.decode()
    assert body.lstrip().startswith('<section id="decision"')
    shown = text_of(answer)
    assert "Send to vm1" in shown
    assert "Start Freeze of vm1, vm2 now" not in shown


@pytest.mark.parametrize("htmx", [True, False])
def test_the_loser_of_a_race_is_told_who_won_and_when(fleet: factories.Fleet, operator: Client, htmx: bool) -> None:
    event = factories.announced(fleet)
    other = logged_in(factories.operator("olga"))
    assert approve(operator, event.event_id, htmx=htmx).status_code in (200, 302)
    won = Approval.objects.get()
    lost = approve(other, event.event_id, htmx=htmx)
    assert lost.status_code == 409
    shown = text_of(lost)
    assert "Somebody was first." in shown
    assert won.granted_at is not None
    assert f"otto has approved it already at {won.granted_at:%H:%M:%S}" in shown
    assert "Nothing more is needed" in shown
    assert Approval.objects.count() == 1


def test_an_event_that_changed_since_it_was_looked_at_is_not_approved(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    fleet.later(5)
    fleet.all_say(factories.listing(resources=("vm1", "vm2", "vm3"), not_before=event.not_before))
    answer = approve(operator, event.event_id, htmx=True, expected_version=event.version, comment="as I saw it")
    assert answer.status_code == 409
    assert "The event has changed since you looked." in text_of(answer)
    # What was typed stays, and the form now carries the version that is shown.
    event.refresh_from_db()
    assert 'value="as I saw it"' in answer.content.decode()
    assert f'name="expected_version" value="{event.version}"' in answer.content.decode()
    assert not Approval.objects.exists()


def test_too_late_says_so_and_offers_no_button(fleet: factories.Fleet, operator: Client) -> None:
    fleet.now = datetime.now(UTC) - timedelta(seconds=30)
    event = factories.announced(fleet, not_before=fleet.now + timedelta(seconds=20))
    page = operator.get(f"/events/{event.event_id}/")
    assert "Too late to approve" in text_of(page)
    assert "NotBefore is past" in text_of(page)
    assert "disabled" in page.content.decode().split("btn btn-primary approve")[1][:40]
    refused = approve(operator, event.event_id, htmx=True)
    assert refused.status_code == 409
    assert "It is too late for that." in text_of(refused)


def test_an_event_nobody_knows_is_404(fleet: factories.Fleet, operator: Client) -> None:
    for answer in (operator.get("/events/NO-SUCH/"), approve(operator, "NO-SUCH"), approve(operator, "NO-SUCH", True)):
        assert answer.status_code == 404


def test_a_comment_that_is_too_long_is_refused(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    answer = approve(operator, event.event_id, htmx=True, comment="x" * 2001)
    assert answer.status_code == 422
    assert "up to 2,000 characters" in text_of(answer)


def test_withdrawing_after_an_order_was_offered_is_refused_with_the_reason(
    fleet: factories.Fleet, operator: Client
) -> None:
    event = factories.announced(fleet)
    approve(operator, event.event_id)
    approval = Approval.objects.get()
    page = operator.get(f"/events/{event.event_id}/").content.decode()
    assert "Withdraw" not in page
    answer = operator.post(f"/approvals/{approval.pk}/withdraw/", headers=HTMX)
    assert answer.status_code == 409
    assert "cannot be withdrawn" in text_of(answer)
    assert operator.post("/approvals/999999/withdraw/").status_code == 404


def test_what_comes_in_as_a_comment_is_shown_as_text(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet, Description="<img src=x onerror=alert(1)>")
    approve(operator, event.event_id, comment="<script>alert(2)</script>")
    for address in (f"/events/{event.event_id}/", "/", "/timeline/", f"/events/{event.event_id}/documents/"):
        body = operator.get(address).content.decode()
        assert "<img src=x" not in body
        assert "<script>alert" not in body


def test_get_does_not_approve(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    assert operator.get(f"/events/{event.event_id}/approve/").status_code == 405
    assert not Approval.objects.exists()
