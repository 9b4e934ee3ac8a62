"""Error pages: each states what happened, whether anything was done, and what to do next."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.db import OperationalError
from django.test import Client
from django.utils.html import escape

from fleet.dashboard.failures import page_of
from fleet.domain.orders.by_hand import linux_command, look_command, windows_command
from fleet.models import Approval
from fleet.projections.desk import status_bar as glance
from fleet.wording.problems import FAILURES
from tests import factories
from tests.dashboard.conftest import text_of
from tests.dashboard.test_pages_keep_the_policy import Outline


def test_page_and_form_of_an_unknown_visitor_lead_to_sign_in(fleet: factories.Fleet) -> None:
    found = Client().get("/sets/?q=web")
    assert (found.status_code, found["Location"]) == (302, "/accounts/login/?next=%2Fsets%2F%3Fq%3Dweb")
    event = factories.announced(fleet)
    there = f"/events/{event.event_id}/"
    answer = Client().post(f"{there}approve/", {"comment": "go"}, headers={"Referer": f"http://testserver{there}"})
    assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={there.replace('/', '%2F')}")
    assert not Approval.objects.exists()


def test_a_mistake_of_ours_names_the_request_and_claims_nothing(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "overview", Mock(side_effect=ZeroDivisionError))
    operator.raise_request_exception = False
    answer = operator.get("/", headers={"X-Request-ID": "night-42"})
    assert answer.status_code == 500
    assert "night-42" in text_of(answer)


def test_a_method_that_an_address_does_not_take(operator: Client) -> None:
    form = f"/events/{factories.EVENT}/approve/"
    for method, address in (("post", "/machines/"), ("put", "/waves/begin/"), ("delete", "/"), ("get", form)):
        answer = getattr(operator, method)(address)
        assert answer.status_code == 405, address
        assert answer["Allow"] and 'href="/"' in answer.content.decode()


def test_every_failure_says_what_happened_and_leads_to_the_queue() -> None:
    for status, (title, reason) in FAILURES.items():
        shown = page_of(status).decode()
        assert title in shown and reason and 'href="/"' in shown, status
        assert Outline(shown).inline == [], status


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that makes the database unreachable from then on."""

    refused = Mock(side_effect=OperationalError("connection refused"))
    return lambda: monkeypatch.setattr(DatabaseSessions, "load", refused)


@pytest.mark.parametrize("signed_in", [True, False])
def test_without_the_database_the_page_has_the_commands_for_a_machine_and_nothing_of_the_fleet(
    fleet: factories.Fleet, operator: Client, away: Callable[[], None], django_assert_num_queries: Any, signed_in: bool
) -> None:
    factories.announced(fleet)
    client = operator
    if not signed_in:
        client = Client()
        client.cookies["drydock_session"] = "unknown-session"
    client.raise_request_exception = False
    away()
    with django_assert_num_queries(0):
        answer = client.get("/")
    shown = text_of(answer)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    for command in (look_command(), linux_command("EVENT-ID"), windows_command("EVENT-ID")):
        assert escape(command) in answer.content.decode()
    assert factories.EVENT not in shown


def test_what_was_typed_when_the_database_went_away_can_be_sent_again(
    fleet: factories.Fleet, away: Callable[[], None]
) -> None:
    event = factories.announced(fleet)
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(factories.operator())
    client.get("/")
    away()
    data = {"csrfmiddlewaretoken": client.cookies["drydock_csrf"].value, "comment": "drained", "when": "now"}
    answer = client.post(f"/events/{event.event_id}/approve/", data)
    assert answer.status_code == 503
    assert 'name="comment" value="drained"' in answer.content.decode()


def test_a_nul_in_an_address_is_a_request_that_cannot_be_read(operator: Client) -> None:
    for address in ("/services/?name=a%00b", "/services/a%00b/", "/machines/?q=%00", "/people/%00/"):
        assert operator.get(address).status_code == 400, address
