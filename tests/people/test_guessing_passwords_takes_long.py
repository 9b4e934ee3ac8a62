"""Failed logins are throttled by name and address, and say how long to wait."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from fleet.models import LoginAttempts
from fleet.operations.people import logins
from tests import factories
from tests.dashboard.conftest import text_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
pytestmark = pytest.mark.django_db


def attempt(username: str = "otto", address: str = "192.0.2.1", after: float = 0) -> float:
    return logins.begin(username=username, address=address, now=NOW + timedelta(seconds=after))


def test_a_name_waits_where_it_failed_and_nowhere_else() -> None:
    assert [attempt(after=second) for second in range(5)] == [0.0] * 5
    assert attempt("OTTO", after=10) == 290
    assert attempt(address="192.0.2.2", after=10) == 0.0
    assert attempt("vera", after=10) == 0.0
    assert attempt(after=301) == 0.0


def test_an_address_and_a_name_have_wider_limits() -> None:
    assert [attempt(f"name-{number}") for number in range(50)] == [0.0] * 50
    assert attempt("vera") > 0
    assert [attempt("axel", f"198.51.100.{number}") for number in range(100)] == [0.0] * 100
    assert attempt("axel", "198.51.100.200") > 0


def test_a_right_password_gives_its_attempt_back() -> None:
    for _ in range(60):
        assert attempt() == 0.0
        logins.succeeded(username="otto", address="192.0.2.1")


def test_old_counts_are_swept_away_and_no_name_is_kept() -> None:
    attempt("hunter2")
    attempt("vera", "192.0.2.9", after=3600)
    assert LoginAttempts.objects.count() == 3
    assert all(len(row.key) == 64 for row in LoginAttempts.objects.all())


@pytest.mark.parametrize("door", ["/accounts/login/", "/admin/login/"])
def test_the_form_says_how_long_to_wait_and_does_not_look_at_the_password(client: Client, door: str) -> None:
    factories.operator()
    for _ in range(5):
        answer = client.post("/accounts/login/", {"username": "otto", "password": "guess"})
        assert "do not belong together" in text_of(answer)
    answer = client.post("/accounts/login/", {"username": "otto", "password": "harbour-otto"})
    assert answer.status_code == 429
    assert "Too many attempts failed. Wait " in text_of(answer)
    assert client.get(door, follow=True).resolver_match.url_name == "login"
