"""Whatever goes wrong is a page of ours, which says what happened, whether anything was done, and what to do."""

from typing import Any

import pytest
from django.test import Client

from fleet.models import Approval
from fleet.projections.desk import fleet as glance
from tests import factories
from tests.dashboard.conftest import text_of


def test_a_form_from_before_the_last_login(fleet: factories.Fleet) -> None:
    event = factories.announced(fleet)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(factories.operator())
    answer = strict.post(f"/events/{event.event_id}/approve/", {"comment": "go"})
    assert answer.status_code == 403
    assert "Nothing was done: it was opened before the last login" in text_of(answer)
    assert "Go to the queue" in text_of(answer)
    assert not Approval.objects.exists()


def test_an_address_that_only_takes_forms(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    answer = operator.get(f"/events/{event.event_id}/approve/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert "This address only takes forms" in text_of(answer)
    assert "Nothing was done." in text_of(answer)


def test_a_form_that_was_sent_after_the_login_ended_leads_back_to_its_page(fleet: factories.Fleet) -> None:
    event = factories.announced(fleet)
    there = f"/events/{event.event_id}/"
    answer = Client().post(f"{there}approve/", {"comment": "go"}, headers={"Referer": f"http://testserver{there}"})
    assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={there.replace('/', '%2F')}")
    assert not Approval.objects.exists()


def test_a_mistake_of_ours_names_the_request_and_claims_nothing(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(glance, "overview", broken)
    operator.raise_request_exception = False
    answer = operator.get("/", headers={"X-Request-ID": "night-42"})
    assert answer.status_code == 500
    assert "It may have been done or not" in text_of(answer)
    assert "night-42" in text_of(answer)


def test_another_host(operator: Client) -> None:
    operator.raise_request_exception = False
    answer = operator.get("/", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    assert "This request cannot be read" in text_of(answer)
