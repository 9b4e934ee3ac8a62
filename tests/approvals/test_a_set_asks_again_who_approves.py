"""Sets that require re-authentication: an approver proves their identity again, and keeps what they typed."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from fleet.models import Approval, Entry
from tests import factories
from tests.accounts import prove
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import logged_in, text_of

pytestmark = pytest.mark.django_db
PASSWORD = "harbour-otto"
APPROVALS = f"/api/v1/events/{factories.EVENT}/approvals/"
APPROVE = f"/events/{factories.EVENT}/approve/"


@pytest.fixture
def fleet() -> factories.Fleet:
    """A fleet whose set asks again."""
    fleet = factories.Fleet(now=datetime.now(UTC))
    factories.announced(fleet)
    factories.change_set(
        set_id=factories.the_set().pk, step_up=True, actor=factories.acting(factories.admin()), now=fleet.now
    )
    return fleet


@pytest.fixture
def otto(fleet: factories.Fleet) -> Client:
    """Signed in for long; the event lies in a set that asks again."""
    return logged_in(factories.operator())


def approve(client: Client, **headers: str) -> Any:
    return client.post(APPROVE, {"comment": "drained <vm1>", "when": "now"}, headers=headers)


def test_a_plain_form_is_kept_while_its_person_is_asked_again(otto: Client) -> None:
    asked = approve(otto)
    assert asked.status_code == 401
    assert "drained &lt;vm1&gt;" in asked.content.decode()
    kept = asked.context["kept"].sealed
    wrong = otto.post("/you/again/", {"kept": kept, "password": "wrong"})
    assert wrong.status_code == 401
    assert "drained &lt;vm1&gt;" in wrong.content.decode()
    assert not Approval.objects.exists()
    right = otto.post("/you/again/", {"kept": kept, "password": PASSWORD}, follow=True)
    assert "Your input was not sent yet" in text_of(right)
    assert "drained &lt;vm1&gt;" in right.content.decode()
    # Remembered for some minutes.
    assert approve(otto).status_code == 302
    assert Approval.objects.get().comment == "drained <vm1>"


def test_form_of_a_page_gets_a_reauthentication_box(otto: Client) -> None:
    headers = {"HX-Request": "true", "X-Drydock-User": "otto"}
    asked = approve(otto, **headers)
    assert (asked.status_code, asked["HX-Retarget"]) == (401, "#again")
    assert otto.post("/you/again/", {"password": "wrong"}, headers=headers).status_code == 401
    done = otto.post("/you/again/", {"password": PASSWORD}, headers=headers, follow=True)
    assert "press the button again" in text_of(done)
    assert approve(otto, **headers).status_code == 200
    assert Approval.objects.count() == 1


def test_form_of_another_user_is_not_continued(otto: Client) -> None:
    kept = approve(otto).context["kept"].sealed
    sent = {"kept": kept, "password": "harbour-vera"}
    assert "drained" not in text_of(logged_in(factories.viewer()).post("/you/again/", sent, follow=True))


def test_the_api_says_what_is_missing_to_a_token_and_lets_a_proved_session_through(otto: Client) -> None:
    by_token = caller(factories.operator())
    refused = problem(by_token.post(f"events/{factories.EVENT}/approvals/", {"comment": "drained"}), 409, "guarded")
    assert [(one["code"], one["needs"]) for one in refused["guards"]] == [("set-wants-step-up", "step-up")]
    assert prove(otto).post(APPROVALS, {"comment": "drained"}, content_type="application/json").status_code < 300
    assert Entry.objects.filter(kind="approval_granted").count() == 1


OTHER = f"{factories.EVENT[:-1]}9"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "several on a page": ("/bulk/", {"do": "approve", "event": f"{factories.EVENT}:VERSION", "confirmed": "1"}),
    "a wave on a page": ("/waves/begin/", {"events": [factories.EVENT, OTHER]}),
    "several by the API": ("/api/v1/bulk/approvals/", {"events": [factories.EVENT]}),
    "a wave by the API": ("/api/v1/waves/", {"events": [factories.EVENT, OTHER]}),
    "at a time": (APPROVALS, {"when": "DUE"}),
    "when prepared": (APPROVALS, {"when": "prepared"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_other_way_approves_without_the_proof(fleet: factories.Fleet, otto: Client, way: str) -> None:
    event = factories.the_event()
    other = factories.listing(OTHER, resources=["vm3"], not_before=event.not_before)
    fleet.all_say(factories.listing(resources=["vm1", "vm2"], not_before=event.not_before), other)
    address, sent = WAYS[way]
    text = json.dumps({"comment": "go", **sent}).replace("VERSION", str(factories.the_event().version))
    said = json.loads(text.replace("DUE", (fleet.now + factories.seconds(60)).isoformat()))
    kind = {"content_type": "application/json"} if address.startswith("/api/") else {}
    assert otto.post(address, said, **kind).status_code < 500
    reason = {"comment": "go", "override": [{"code": "set-wants-step-up", "reason": "hurry"}]}
    assert otto.post(APPROVALS, reason, content_type="application/json").status_code in (409, 422)
    assert not Approval.objects.exists()
    # With the proof the same call approves.
    assert prove(otto).post(address, said, **kind).status_code in (200, 201, 302)
    assert Approval.objects.exists()


def test_proof_grows_old_also_for_an_approval_after_an_undo(otto: Client, settings: Any) -> None:
    settings.APPROVAL_UNDO_SECONDS = 3
    assert approve(prove(otto)).status_code == 302
    otto.post("/bulk/undo/", {"approval": Approval.objects.get().pk})
    assert Approval.objects.get().state == "WITHDRAWN"
    settings.STEP_UP_SECONDS = 0.000001
    assert approve(otto).status_code == 401
    assert Approval.objects.count() == 1


def test_second_person_needs_a_proof_of_their_own(fleet: factories.Fleet, otto: Client) -> None:
    factories.change_set(
        set_id=factories.the_set().pk, second_person=True, actor=factories.acting(factories.admin()), now=fleet.now
    )
    anna = logged_in(factories.approver())
    assert approve(prove(otto)).status_code == 302
    proposal = Approval.objects.get()
    assert anna.post(f"/approvals/{proposal.pk}/consent/", {"comment": "yes"}).status_code == 401
    proposal.refresh_from_db()
    assert (proposal.state, proposal.consented_by) == ("PROPOSED", None)
    assert prove(anna).post(f"/approvals/{proposal.pk}/consent/", {"comment": "yes"}).status_code == 302
    assert Approval.objects.get().state == "GRANTED"
