"""Undo: an approval on a page can be undone for some seconds, then its guards run again and it is dispatched."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, ScheduledEvent
from fleet.operations.approvals import conditions
from fleet.operations.policy import rules
from tests.approvals.asking import entries, orders
from tests.dashboard.conftest import acts, codes, logged_in, text_of
from tests.factories import Fleet, acting, after, announced, approver, operator, seconds
from tests.policy.conftest import made
from tests.words import code_of, text

pytestmark = pytest.mark.django_db
ALL = tuple(f"vm{number}" for number in range(1, 7))


@pytest.fixture(autouse=True)
def some_seconds(settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3


def clicked(fleet: Fleet, **fields: Any) -> Approval:
    """Approved as the button of a page does it."""
    return fleet.approve(when=When.UNDO, **fields)


def undo(fleet: Fleet, approval: Approval, *, comment: str = "") -> None:
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator(), why=comment), now=fleet.now)


def test_nothing_goes_to_azure_before_the_seconds_are_over(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = clicked(fleet, comment="go")
    assert (approval.state, approval.when, approval.due_at) == ("WAITING", "undo", fleet.now + seconds(3))
    fleet.later(2.9)
    fleet.advance()
    assert (after(approval).state, orders(approval)) == ("WAITING", 0)
    assert conditions.due_for_dispatch(until=fleet.now) == []
    assert conditions.due_for_dispatch(until=fleet.now + seconds(1)) == [(approval.due_at, [approval.event_id])]
    fleet.later(0.1)
    assert conditions.advance(now=fleet.now, event_pks=[approval.event_id]) == 1
    # A second process finds nothing left to dispatch.
    assert conditions.advance(now=fleet.now, event_pks=[approval.event_id]) == 0
    assert (after(approval).state, after(approval).granted_at, orders(approval)) == ("GRANTED", fleet.now, 1)
    assert [text(line) for line in (*entries("approval_planned"), *entries("approval_due"))] == [
        "otto approved: start now. “go”",
        "The undo period passed without an undo. Drydock sends the approval to Azure.",
    ]


def test_undone_it_leaves_an_entry_and_can_be_decided_again(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = clicked(fleet)
    fleet.later(1)
    undo(fleet, approval, comment="the wrong one")
    assert after(approval).state == "WITHDRAWN"
    assert code_of(after(approval).reason) == "undone"
    fleet.later(10)
    fleet.advance()
    assert orders(approval) == 0
    assert clicked(fleet).state == "WAITING"


@pytest.mark.parametrize(("when", "decides"), [(When.UNDO, True), (When.PREPARED, False)])
def test_rules_decide_as_before_after_it_was_undone_but_not_after_a_withdrawal(
    fleet: Fleet, event: ScheduledEvent, when: When, decides: bool
) -> None:
    undo(fleet, fleet.approve(when=when))
    made(at=fleet.now, event_types=["Freeze"])
    fleet.later(1)
    fleet.advance()
    assert Approval.objects.filter(rule__isnull=False).exists() is decides


@pytest.mark.parametrize(("left", "period"), [(59, 3), (1, 3), (900, 0)])
def test_in_the_last_minute_or_without_an_undo_period_it_goes_at_once(
    fleet: Fleet, settings: Any, left: int, period: int
) -> None:
    settings.APPROVAL_UNDO_SECONDS = period
    announced(fleet, not_before=fleet.now + seconds(left + 1))
    approval = clicked(fleet)
    assert (approval.when, approval.due_at, approval.state, orders(approval)) == ("now", None, "GRANTED", 1)


def test_what_was_stopped_meanwhile_does_not_go(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = clicked(fleet)
    fleet.later(1)
    rules.stop_all(actor=acting(approver(), why="all of it"), now=fleet.now)
    fleet.later(2)
    fleet.advance()
    assert (after(approval).state, orders(approval)) == ("WAITING", 0)


def test_a_proposal_waits_for_its_second_person_whose_agreement_can_be_undone(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot", resources=ALL)
    approval = clicked(fleet)
    assert (approval.state, approval.when, approval.due_at) == ("PROPOSED", "now", None)
    fleet.later(20)
    done = conditions.consent(approval_id=approval.pk, actor=acting(approver()), now=fleet.now, undo=True)
    assert (done.state, done.when, done.due_at) == ("WAITING", "undo", fleet.now + seconds(3))
    fleet.later(3)
    fleet.advance()
    assert orders(approval) == 1


class TestOnThePage:
    @pytest.fixture
    def fleet(self, settings: Any) -> Fleet:
        # Real time passes here, on machines that are slow now and then.
        settings.APPROVAL_UNDO_SECONDS = 9
        return Fleet(datetime.now(UTC) - timedelta(seconds=2))

    def test_one_click_waits_and_everybody_sees_whose_it_is_and_how_long(self, fleet: Fleet) -> None:
        event = announced(fleet)
        otto, olga = logged_in(operator()), logged_in(operator("olga"))
        address = f"/events/{event.event_id}/"
        answers = [otto.post(f"{address}approve/", {"when": "now"}, headers={"HX-Request": "true"})]
        answers += [client.get(address) for client in (otto, olga)]
        for answer in answers:
            assert '<div class="undo">' in answer.content.decode() and "withdraw" in acts(answer)
            assert "otto" in text_of(answer)
        approval = Approval.objects.get()
        assert (approval.when, approval.via) == ("undo", "page")
        undone = olga.post(f"/approvals/{approval.pk}/withdraw/", headers={"HX-Request": "true"})
        assert "undone" in codes(undone) and "approve" in acts(undone)

    def test_the_api_is_immediate(self, fleet: Fleet, event: ScheduledEvent, client: Client) -> None:
        client.force_login(operator())
        said = client.post(
            f"/api/v1/events/{event.event_id}/approvals/", {"comment": "go"}, content_type="application/json"
        )
        assert (said.status_code, said.json()["when"], said.json()["state"]) == (201, "now", "GRANTED")


def test_internal_approval_modes_are_refused_in_a_form(fleet: Fleet, event: ScheduledEvent) -> None:
    page = logged_in(operator())
    for when in ("undo", "turn"):
        assert page.post(f"/events/{event.event_id}/approve/", {"when": when}).status_code == 422
    assert not Approval.objects.exists()
