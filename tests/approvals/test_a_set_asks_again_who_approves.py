"""Sets that require re-authentication: an approver proves their identity again, and keeps what they typed."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models import Approval, Entry
from fleet.operations import step_up
from tests import factories
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import text_of

pytestmark = pytest.mark.django_db
PASSWORD = "a pier of green heart"
APPROVALS = f"/api/v1/events/{factories.EVENT}/approvals/"
APPROVE = f"/events/{factories.EVENT}/approve/"


@pytest.fixture
def otto() -> Client:
    """Signed in for long; the event lies in a set that asks again."""
    fleet = factories.Fleet(now=datetime.now(UTC))
    factories.announced(fleet)
    factories.change_set(
        set_id=factories.the_set().pk, step_up=True, actor=factories.acting(factories.admin()), now=fleet.now
    )
    user = factories.operator()
    user.set_password(PASSWORD)
    user.save()
    client = Client()
    client.force_login(user)
    return client


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
    other = Client()
    vera = factories.viewer()
    vera.set_password(PASSWORD)
    vera.save()
    other.force_login(vera)
    assert "drained" not in text_of(other.post("/you/again/", {"kept": kept, "password": PASSWORD}, follow=True))


def test_a_proof_grows_old(otto: Client, settings: Any) -> None:
    session = otto.session
    step_up.note(session, at=timezone.now())
    session.save()
    settings.STEP_UP_SECONDS = 0.000001
    assert approve(otto).status_code == 401


def test_the_api_says_what_is_missing_to_a_token_and_lets_a_proved_session_through(otto: Client) -> None:
    by_token = caller(factories.operator())
    refused = problem(by_token.post(f"events/{factories.EVENT}/approvals/", {"comment": "drained"}), 409, "guarded")
    assert [(one["code"], one["needs"]) for one in refused["guards"]] == [("set-wants-step-up", "step-up")]
    session = otto.session
    step_up.note(session, at=timezone.now())
    session.save()
    assert otto.post(APPROVALS, {"comment": "drained"}, content_type="application/json").status_code in (200, 201)
    assert Entry.objects.filter(kind="approval_granted").count() == 1


@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("/bulk/", {"do": "approve", "event": f"{factories.EVENT}:1", "comment": "go", "confirmed": "1"}),
        ("/waves/begin/", {"events": f"{factories.EVENT}:1", "comment": "go"}),
        ("/api/v1/bulk/approvals/", {"events": [factories.EVENT], "comment": "go", "count": 1}),
        ("/api/v1/waves/", {"events": [factories.EVENT], "comment": "go"}),
        (APPROVALS, {"comment": "go", "when": "time", "due_at": "2099-01-01T00:00Z"}),
        (APPROVALS, {"comment": "go", "override": {"set-wants-step-up": "hurry"}}),
    ],
)
def test_no_other_way_approves_without_the_proof(otto: Client, address: str, sent: dict[str, Any]) -> None:
    kind = {"content_type": "application/json"} if address.startswith("/api/") else {}
    assert 200 <= otto.post(address, json.dumps(sent) if kind else sent, **kind).status_code < 500
    assert not Approval.objects.exists()
