"""Password guessing: failed sign-ins delay the attacker ever longer, and never the rightful user."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import NoReverseMatch, reverse

from fleet.accounts import logins
from fleet.accounts import services as account_services
from fleet.accounts.logins import Attempt
from fleet.domain.secrets import new_secret, prefix_of
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, KnownDevice, LoginAttempts
from tests import factories
from tests.approvals.racing import thread_group
from tests.dashboard.conftest import text_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HERE = "192.0.2.1"
pytestmark = pytest.mark.django_db


def begin(username: str = "otto", address: str = HERE, after: float = 0, device: str = "") -> Attempt:
    return logins.begin(username=username, address=address, device=device, now=NOW + timedelta(seconds=after))


def attempt(*who: str, **more: Any) -> float | None:
    return begin(*who, **more).wait


def device_of_otto(after: float = 0) -> str:
    otto = factories.operator()
    logins.succeeded(begin(after=after), user=otto, address=HERE)
    return logins.know_device(user=otto, device="", now=NOW + timedelta(seconds=after))


def test_a_name_waits_longer_and_longer_where_it_failed_and_nowhere_else() -> None:
    assert [attempt(after=second) for second in range(5)] == [0.0] * 5
    assert attempt("OTTO", after=4) == 1
    assert attempt(after=5) == 0.0
    assert attempt(after=5.5) == 1.5
    assert attempt(after=7) == 0.0
    assert attempt(after=7) == 4
    assert attempt(address="192.0.2.2", after=10) == 0.0
    assert attempt("vera", after=10) == 0.0
    # An attempt that had to wait was none, and an hour later all is forgotten.
    assert [attempt(after=3700) for _ in range(5)] == [0.0] * 5


def test_no_number_of_made_up_names_shuts_an_address_out() -> None:
    assert [attempt(f"name-{number}", after=number) for number in range(50)] == [0.0] * 50
    assert attempt("vera", after=49) == 1
    later, waits = 49.0, []
    for number in range(100):
        later += attempt(f"more-{number}", after=later) or 0
        waits.append(attempt(f"more-{number}", after=later))
        assert waits[-1] == 0.0
        assert 0 < (attempt("vera", after=later) or 0) <= 60


def test_neighbours_of_one_network_are_one_address() -> None:
    for number in range(50):
        attempt(f"name-{number}", f"2001:db8::{number:x}")
    assert (attempt("vera", "2001:db8::ffff") or 0) > 0
    assert attempt("vera", "2001:db8:0:1::1") == 0.0


def test_a_name_alone_waits_too_but_not_on_a_known_device() -> None:
    device = device_of_otto()
    assert [attempt(address=f"198.51.100.{number}", after=1) for number in range(20)] == [0.0] * 20
    assert attempt(address="198.51.100.99", after=1) == 30
    assert attempt(after=1, device=device) == 0.0
    # The secret is this person's only, and only as long as it is known.
    assert attempt("vera", after=1, device=device) == 0.0
    assert (attempt(address="198.51.100.99", after=1, device="device_made_up") or 0) > 0
    assert attempt(address="198.51.100.98", after=91 * 86400, device=device) == 0.0


def test_a_known_device_waits_for_its_own_failures() -> None:
    device = device_of_otto()
    assert [attempt(after=1, device=device) for _ in range(10)] == [0.0] * 10
    assert attempt(after=1, device=device) == 1
    assert attempt(after=2, device=device) == 0.0


def test_after_a_hundred_in_a_row_the_password_counts_on_known_devices_only() -> None:
    device = device_of_otto()
    for number in range(100):
        assert attempt(address=f"198.51.100.{number}", after=number * 3601) == 0.0
    later = 101 * 3601
    assert attempt(address="203.0.113.1", after=later) is None
    told = Entry.objects.get(kind=EntryKind.LOGINS_REFUSED.value)
    assert factories.told(told).data == {"person": "otto", "count": 100}
    known = begin(after=later, device=device)
    assert known.wait == 0.0
    logins.succeeded(known, user=factories.operator(), address=HERE)
    assert attempt(address="203.0.113.1", after=later) == 0.0


@pytest.mark.parametrize("release", ["command", "password"])
def test_an_admin_lets_the_password_count_again(release: str) -> None:
    factories.operator()
    for number in range(100):
        attempt(address=f"198.51.100.{number}", after=number * 3601)
    assert attempt(address="203.0.113.1", after=10**6) is None
    if release == "command":
        call_command("release_login", "otto")
    else:
        account_services.reset_password(username="otto", now=NOW)
    assert attempt(address="203.0.113.1", after=10**6) == 0.0


def test_failed_sign_ins_of_unknown_names_write_no_entry() -> None:
    for number in range(101):
        attempt("nobody", f"198.51.100.{number}", after=number * 3601)
    assert not Entry.objects.filter(kind=EntryKind.LOGINS_REFUSED.value).exists()


def test_a_right_password_gives_its_attempt_back_and_forgets_what_failed_here() -> None:
    otto = factories.operator()
    for number in range(60):
        for _ in range(3):
            attempt(after=number)
        found = begin(after=number)
        assert found.wait == 0.0
        logins.succeeded(found, user=otto, address=HERE)
        assert logins.know_device(user=otto, device="", now=NOW + timedelta(seconds=number)) != ""
        # What failed counts for the address and the name; so does nothing that was right.
        LoginAttempts.objects.filter(count__gt=0).update(count=0)
    assert KnownDevice.objects.count() == logins.MOST_DEVICES


def test_old_counts_are_removed_and_no_name_is_kept() -> None:
    attempt("hunter2")
    attempt("vera", "192.0.2.9", after=90_000)
    assert LoginAttempts.objects.count() == 4
    assert all(len(row.key) == 64 for row in LoginAttempts.objects.all())


@pytest.mark.django_db(transaction=True)
def test_guesses_side_by_side_do_not_slip_through() -> None:
    with thread_group(12) as group:
        assert sum(wait == 0.0 for wait in group.at_once(*[attempt] * 12)) == 5


@pytest.mark.parametrize("address", ["/accounts/login/", "/admin/login/"])
def test_the_form_says_how_long_to_wait_and_does_not_look_at_the_password(client: Client, address: str) -> None:
    factories.operator()
    for _ in range(5):
        answer = client.post("/accounts/login/", {"login": "otto", "password": "guess"})
        assert "password is wrong" in text_of(answer)
    answer = client.post("/accounts/login/", {"login": "otto", "password": "harbour-otto"})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "1"
    assert "Too many attempts failed. Wait 1 s, then try again." in text_of(answer)
    assert client.get(address, follow=True).resolver_match.url_name == "account_login"


def test_browser_of_an_earlier_sign_in_is_known(client: Client) -> None:
    factories.operator()
    right = {"login": "otto", "password": "harbour-otto"}
    answer = client.post("/accounts/login/", right)
    cookie = answer.cookies["drydock_device"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", 90 * 86400)
    client.logout()
    client.cookies["drydock_device"] = cookie.value
    for number in range(60):
        Client(REMOTE_ADDR=f"198.51.100.{number}").post("/accounts/login/", {"login": "otto", "password": "guess"})
        Client().post("/accounts/login/", {"login": f"made-up-{number}", "password": "guess"})
    answer = client.post("/accounts/login/", right)
    assert answer.status_code == 302
    assert "drydock_device" not in answer.cookies


# Sign-in entry point: every sign-in uses the one method, and no page of a library bypasses it.


PASSWORD = "harbour-otto"


@pytest.mark.parametrize(
    "address", ["signup/", "email/", "password/reset/", "password/set/", "confirm-email/", "reauthenticate/", "2fa/"]
)
def test_pages_of_the_library_are_not_there(client: Client, address: str) -> None:
    assert client.get(f"/accounts/{address}").status_code == 302
    client.force_login(factories.admin())
    assert client.get(f"/accounts/{address}").status_code == 404


@pytest.mark.parametrize(
    "name", ["account_signup", "account_reset_password", "account_email", "socialaccount_connections"]
)
def test_sign_up_and_self_linking_have_no_page(name: str) -> None:
    with pytest.raises(NoReverseMatch):
        reverse(name)


def test_admin_has_no_sign_in_page_of_its_own(client: Client) -> None:
    answer = client.post("/admin/login/?next=/admin/", {"username": "otto", "password": "x"})
    assert answer.status_code in (301, 302)
    assert answer["Location"] == "/accounts/login/?next=/admin/"


def test_the_admin_has_no_form_of_its_own_for_ones_password(client: Client) -> None:
    """It would take guesses at the old one without end, and leave no line on the timeline."""
    ada = factories.admin()
    ada.is_staff = ada.is_superuser = True
    ada.save()
    client.force_login(ada)
    fields = {"old_password": "harbour-ada", **dict.fromkeys(("new_password1", "new_password2"), "a whole new harbour")}
    for address in ("/admin/password_change/", "/admin/password_change/done/"):
        for answer in (client.get(address), client.post(address, fields)):
            assert (answer.status_code, answer["Location"]) == (302, "/you/password/")
    ada.refresh_from_db()
    assert ada.check_password("harbour-ada")


def test_the_admin_shows_nothing_of_second_factors_and_providers() -> None:
    shown = {model._meta.label for model in admin.site._registry}
    assert not {label for label in shown if label.startswith(("account.", "mfa.", "socialaccount."))}


def test_deactivated_user_cannot_sign_in(client: Client) -> None:
    User.objects.filter(pk=factories.operator().pk).update(is_active=False)
    answer = client.post("/accounts/login/", {"login": "otto", "password": PASSWORD})
    assert answer.status_code == 200
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize("kind", ["dd", "join"])
def test_the_documentation_tells_scanners_how_secrets_look(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin" / "people.md").read_text(encoding="utf-8")
    found = re.search(r"match `(\\bdd_[^`]+)`", page)
    assert found
    pattern = found[1].replace("dd_", f"{kind}_", 1)
    for _ in range(50):
        secret = new_secret(kind)
        assert re.findall(pattern, f'token = "{secret}"; {prefix_of(secret)}') == [secret]
