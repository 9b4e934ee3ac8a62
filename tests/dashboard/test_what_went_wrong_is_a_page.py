"""Whatever goes wrong is a page of ours, which says what happened, whether anything was done, and what to do."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.db import OperationalError
from django.test import Client

from fleet.dashboard import visitor
from fleet.dashboard.failures import page_of
from fleet.models import Approval
from fleet.projections.desk import fleet as glance
from fleet.projections.desk import last_known
from fleet.wording.problems import FAILURES
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


def test_a_form_of_somebody_who_was_never_here_leads_to_the_login(fleet: factories.Fleet) -> None:
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


@pytest.mark.parametrize(("method", "address"), [("post", "/machines/"), ("put", "/waves/begin/"), ("delete", "/")])
def test_a_method_that_an_address_does_not_take(operator: Client, method: str, address: str) -> None:
    answer = getattr(operator, method)(address)
    assert answer.status_code == 405
    assert answer["Allow"]
    assert "Nothing was done." in text_of(answer)
    assert "Go to the queue" in text_of(answer)


@pytest.mark.parametrize("status", sorted(FAILURES))
def test_every_failure_says_what_to_do(status: int) -> None:
    shown = page_of(status).decode()
    title, reason = FAILURES[status]
    assert title in shown
    assert reason
    assert "Go to the queue" in shown


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on nobody reaches the database."""

    def cut() -> None:
        def refused(*_: Any, **__: Any) -> None:
            raise OperationalError("connection refused")

        monkeypatch.setattr(DatabaseSessions, "load", refused)

    return cut


def test_without_the_database_the_last_known_queue_is_shown_to_whoever_was_here(
    fleet: factories.Fleet, operator: Client, away: Callable[[], None]
) -> None:
    factories.announced(fleet, event_type="Reboot", resources=("vm1", "<vm2>"))
    operator.get("/")
    last_known.refresh(now=fleet.now)
    away()
    operator.raise_request_exception = False
    answer = operator.get("/")
    shown = text_of(answer)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert "The database is away" in shown
    assert "The queue as it was at" in shown
    assert "Reboot of vm1, &lt;vm2&gt; in web" in shown
    assert "Azure starts it any time after" in shown
    assert "StartRequests" in shown
    assert factories.EVENT in shown


def test_it_is_shown_to_nobody_else(fleet: factories.Fleet, operator: Client, away: Callable[[], None]) -> None:
    factories.announced(fleet)
    operator.get("/")
    last_known.refresh(now=fleet.now)
    away()
    stranger, thief = Client(raise_request_exception=False), Client(raise_request_exception=False)
    # The cookie alone is not enough: it belongs to a session.
    thief.cookies[visitor.COOKIE] = operator.cookies[visitor.COOKIE].value
    thief.cookies["drydock_session"] = "of-another-login"
    stranger.cookies["drydock_session"] = "made-up-by-somebody"
    for client in (stranger, thief):
        shown = text_of(client.get("/"))
        assert "The database is away" in shown
        assert factories.EVENT not in shown
        assert "Anybody who can log in to a machine can ask Azure there." in shown


def test_it_is_shown_for_some_minutes_only(
    fleet: factories.Fleet, operator: Client, away: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.announced(fleet)
    operator.get("/")
    last_known.refresh(now=fleet.now)
    away()
    operator.raise_request_exception = False
    monkeypatch.setattr(visitor, "SPEAKS_FOR", -1)
    assert factories.EVENT not in text_of(operator.get("/"))


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
    assert "Send it again" in text_of(answer)
    assert 'name="comment" value="drained"' in answer.content.decode()


def test_learning_the_queue_by_heart_costs_one_query(fleet: factories.Fleet, django_assert_num_queries: Any) -> None:
    factories.announced(fleet)
    with django_assert_num_queries(1):
        last_known.refresh(now=fleet.now)


@pytest.mark.parametrize("address", ["/services/?name=a%00b", "/services/a%00b/", "/machines/?q=%00", "/people/%00/"])
def test_a_nul_in_an_address_is_a_request_that_cannot_be_read(operator: Client, address: str) -> None:
    answer = operator.get(address)
    assert answer.status_code == 400
    assert "Go to the queue" in text_of(answer)
