"""Ended sessions: in the middle of a decision the user re-authenticates in place and keeps what they typed."""

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from fleet.dashboard import saved_form
from fleet.models import Approval
from tests import factories

HTMX = {"HX-Request": "true", "X-Drydock-User": "otto"}


@pytest.fixture
def otto(fleet: factories.Fleet) -> Client:
    """Signed in and on a page of his; then his session ends."""
    event = factories.announced(fleet)
    client = Client(enforce_csrf_checks=True)
    client.force_login(factories.operator())
    assert client.get(f"/events/{event.event_id}/").status_code == 200
    Session.objects.all().delete()
    return client


def token(client: Client) -> str:
    return client.cookies["drydock_csrf"].value


def approve(client: Client, headers: dict[str, str] | None = None, **fields: str) -> Any:
    data = {"csrfmiddlewaretoken": token(client), "comment": "drained <vm1>", "when": "now", **fields}
    return client.post(f"/events/{factories.EVENT}/approve/", data, headers=headers or {})


def field(answer: Any, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', answer.content.decode())
    assert found
    return unescape(found[1])


def again(client: Client, answer: Any, username: str = "otto", headers: Any = None, **fields: str) -> Any:
    """Sign in with the form or in the box that this answer shows."""
    data = {"login": username, "password": f"harbour-{username}"}
    data |= {name: field(answer, name) for name in ("csrfmiddlewaretoken", *(() if headers else ("kept",)))}
    return client.post("/accounts/login/", data | fields, headers=headers or {}, follow=True)


def test_a_form_leads_to_the_password_then_to_what_it_would_send_and_only_then_to_azure(otto: Client) -> None:
    asked = approve(otto)
    assert asked.status_code == 401
    assert "drained &lt;vm1&gt;" in asked.content.decode()
    assert 'value="otto" readonly' in asked.content.decode()
    back = again(otto, asked)
    assert not Approval.objects.exists()
    # As its form holds it, with the key that signing in has made.
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', back.content.decode())
    sent = otto.post(f"/events/{factories.EVENT}/approve/", {name: unescape(value) for name, value in fields})
    assert sent.status_code == 302
    assert Approval.objects.get().comment == "drained <vm1>"


def test_a_wrong_password_keeps_it_all_the_same(otto: Client) -> None:
    asked = approve(otto)
    refused = again(otto, asked, password="wrong")
    assert refused.status_code == 401
    assert again(otto, refused).status_code == 200
    assert not Approval.objects.exists()


def test_another_user_cannot_continue_the_saved_form(otto: Client) -> None:
    factories.operator("mallory")
    refused = again(otto, approve(otto), username="mallory")
    assert refused.status_code == 403
    # Nor in the box of a page.
    refused = again(otto, approve(otto, headers=HTMX), username="mallory", headers=HTMX)
    assert refused.status_code == 403
    assert not Session.objects.exists()
    assert not Approval.objects.exists()


def test_saved_identity_cannot_be_forged(otto: Client) -> None:
    asked = approve(otto)
    assert again(otto, asked, kept=field(asked, "kept")[:-2] + "xx").status_code == 403
    assert not Session.objects.exists()


def test_passwords_are_never_kept(otto: Client) -> None:
    data = {"csrfmiddlewaretoken": token(otto), "old_password": "secret", "new_password1": "x", "new_password2": "x"}
    answer = otto.post("/you/password/", data)
    assert answer.status_code == 302
    assert "secret" not in answer.content.decode()


def test_form_from_another_site_is_not_saved(otto: Client) -> None:
    answer = otto.post(f"/events/{factories.EVENT}/approve/", {"comment": "forged"})
    assert answer.status_code == 403
    assert "forged" not in answer.content.decode()


def test_a_part_of_a_page_brings_the_box_and_the_page_stays(otto: Client) -> None:
    asked = approve(otto, headers=HTMX)
    assert (asked.status_code, asked["HX-Retarget"]) == (401, "#again")
    assert "<html" not in asked.content.decode()
    back = again(otto, asked, headers=HTMX)
    assert back.status_code == 200
    new = re.search(r'data-token="(\w+)"', back.content.decode())
    assert new
    assert approve(otto, headers=HTMX, csrfmiddlewaretoken=new[1]).status_code == 200
    assert Approval.objects.count() == 1


def test_page_from_before_the_login_gets_the_new_token_only_for_the_same_user(otto: Client) -> None:
    old = token(otto)
    otto.force_login(factories.operator())
    otto.cookies["drydock_csrf"] = "x" * 32
    stale = approve(otto, headers=HTMX, csrfmiddlewaretoken=old)
    assert (stale.status_code, stale["HX-Retarget"]) == (403, "#again")
    assert "data-token" in stale.content.decode()
    otto.force_login(factories.operator("olga"))
    stale = approve(otto, headers=HTMX, csrfmiddlewaretoken=old)
    assert "data-token" not in stale.content.decode()
    assert not Approval.objects.exists()


def test_logging_out_forgets_the_name(fleet: factories.Fleet, operator: Client) -> None:
    operator.get("/")
    assert operator.cookies[saved_form.COOKIE].value
    operator.post("/accounts/logout/")
    assert not operator.cookies[saved_form.COOKIE].value
