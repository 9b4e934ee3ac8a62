"""Re-authentication at the identity provider: single sign-on users prove themselves before approving where a set
requires it. What they typed returns with them, and no old, foreign or forged proof counts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from azure_simulator.entra.tokens import NOT_AGAIN
from django.test import Client
from pytest_django import Settings

from fleet.accounts.models import SignOn
from fleet.models import Approval
from tests import accounts, factories
from tests.dashboard.conftest import text_of
from tests.people.directory import BACK, Directory, asked_for, come, there

pytestmark = pytest.mark.django_db
APPROVE = f"/events/{factories.EVENT}/approve/"
TYPED = "drained <vm1>"
WAYS = {"a plain form": {}, "a part of a page": {"HX-Request": "true", "X-Drydock-User": "otto%40contoso.example"}}


@pytest.fixture
def otto(entra: Directory) -> Client:
    """In by single sign-on; the event lies in a set that asks again."""
    fleet = factories.Fleet(now=datetime.now(UTC))
    factories.announced(fleet)
    admin = factories.acting(factories.admin("root"))
    factories.change_set(set_id=factories.the_set().pk, step_up=True, actor=admin, now=fleet.now)
    accounts.map_group(actor=admin, value="Drydock.Operator", group="operator", now=fleet.now)
    accounts.map_group(actor=admin, value="Drydock.Admin", group="admin", now=fleet.now)
    client = Client()
    assert come(client, "otto").status_code == 302
    return client


def approve(client: Client, **headers: str) -> Any:
    return client.post(APPROVE, {"comment": TYPED, "when": "now"}, headers=headers)


def leads_to(answer: Any) -> dict[str, str]:
    """The parameters of the link to the provider that this answer shows."""
    return dict(parse_qsl(urlsplit(answer.context["provider"]).query))


@pytest.mark.parametrize("headers", WAYS.values(), ids=WAYS.keys())
def test_what_was_typed_comes_back_from_the_provider_and_the_approval_goes_through(
    otto: Client, headers: dict[str, str]
) -> None:
    asked = approve(otto, **headers)
    assert asked.status_code == 401 and "Go to your provider" in asked.content.decode()
    query = leads_to(asked)
    at_provider = asked_for(otto, **query)
    assert (at_provider["prompt"], at_provider["max_age"]) == ("login", "0")
    # Before the provider has said anything nothing of it is shown or sent.
    assert "Confirm your identity" in text_of(otto.get(query["next"], follow=True))
    assert approve(otto, **headers).status_code == 401
    back = otto.get(BACK, there(at_provider, "otto"))
    assert back["Location"] == query["next"]
    shown = otto.get(back["Location"])
    assert "Your input was not sent yet" in text_of(shown)
    kept = shown.context["kept"]
    assert (kept.to, dict(kept.fields)["comment"]) == (APPROVE, TYPED)
    assert not Approval.objects.exists()
    assert otto.post(kept.to, dict(kept.fields)).status_code == 302
    assert Approval.objects.get().comment == TYPED
    # It is shown once, and remembered for some minutes.
    assert "Your input was not sent yet" not in text_of(otto.get(back["Location"], follow=True))


@pytest.mark.parametrize("lie", NOT_AGAIN)
def test_provider_without_reauthentication_gives_no_proof(entra: Directory, otto: Client, lie: str) -> None:
    """It ignores `max_age`, leaves the time out, or makes one up."""
    query = leads_to(approve(otto))
    entra.fault(lie)
    assert otto.get(BACK, there(asked_for(otto, **query), "otto")).status_code == 403
    assert approve(otto).status_code == 401 and not Approval.objects.exists()
    # It is still there for who does it rightly.
    back = otto.get(BACK, there(asked_for(otto, **query), "otto"))
    assert otto.get(back["Location"]).context["kept"].to == APPROVE


def test_another_person_at_the_provider_proves_nothing_and_sees_nothing(otto: Client) -> None:
    query = leads_to(approve(otto))
    answer = otto.get(BACK, there(asked_for(otto, **query), "ada"))
    assert answer.status_code == 403
    assert otto.get("/api/v1/me/").json()["username"] == "otto@contoso.example"
    assert approve(otto).status_code == 401 and not Approval.objects.exists()
    # Signed in as herself in the same browser, she does not get the form that he filled.
    assert come(otto, "ada").status_code == 302
    assert TYPED not in otto.get(query["next"], follow=True).content.decode()


def test_a_proof_counts_once_and_for_who_asked(otto: Client, settings: Settings) -> None:
    query = leads_to(approve(otto))
    said = there(asked_for(otto, **query), "otto")
    other = Client()
    come(other, "otto")
    assert other.get(BACK, said).status_code == 403, "in another browser"
    assert otto.get(BACK, said).status_code == 302
    settings.STEP_UP_SECONDS = 0.000001
    assert approve(otto).status_code == 401
    assert otto.get(BACK, said).status_code == 403, "once more"
    assert approve(otto).status_code == 401
    # A sign-in without re-authentication is no proof either.
    settings.STEP_UP_SECONDS = 300
    session = otto.session
    session.pop("drydock_stepped_up", None)
    session.save()
    assert come(otto, "otto", next="/").status_code == 302
    assert approve(otto).status_code == 401
    assert SignOn.objects.get(user__username="otto@contoso.example").user is not None
