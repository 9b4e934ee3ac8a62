"""Password guessing: failed sign-ins delay the attacker ever longer, and never the rightful user."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
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
from tests.rows import PersonFactory

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


def a_hundred_in_a_row(name: str = "otto") -> None:
    """Failures of this name, an hour apart and from as many addresses; then it is after `LATER`."""
    assert [attempt(name, f"198.51.100.{number}", after=number * 3601) for number in range(100)] == [0.0] * 100


LATER = 101 * 3601


def test_after_a_hundred_in_a_row_the_password_counts_on_known_devices_only() -> None:
    device = device_of_otto()
    a_hundred_in_a_row()
    assert attempt(address="203.0.113.1", after=LATER) is None
    told = Entry.objects.get(kind=EntryKind.LOGINS_REFUSED.value)
    assert factories.told(told).data == {"person": "otto", "count": 100}
    known = begin(after=LATER, device=device)
    assert known.wait == 0.0
    logins.succeeded(known, user=factories.operator(), address=HERE)
    assert attempt(address="203.0.113.1", after=LATER) == 0.0
    # An administrator lets the password count again, too; unknown names write no entry.
    factories.viewer()
    for release in (
        lambda: call_command("release_login", "vera"),
        lambda: account_services.reset_password(username="vera", now=NOW),
    ):
        LoginAttempts.objects.all().delete()
        a_hundred_in_a_row("vera")
        assert attempt("vera", "203.0.113.1", after=LATER) is None
        release()
        assert attempt("vera", "203.0.113.1", after=LATER) == 0.0
    LoginAttempts.objects.all().delete()
    a_hundred_in_a_row("nobody")
    refused = Entry.objects.filter(kind=EntryKind.LOGINS_REFUSED.value)
    assert {factories.told(row).data["person"] for row in refused} == {"otto", "vera"}


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
    cookie = client.post("/accounts/login/", right).cookies["drydock_device"]
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", 90 * 86400)
    client.logout()
    client.cookies["drydock_device"] = cookie.value
    for number in range(60):
        for name, address in (("otto", f"198.51.100.{number}"), (f"made-up-{number}", "127.0.0.1")):
            logins.begin(username=name, address=address, now=datetime.now(UTC))
    answer = client.post("/accounts/login/", right)
    assert answer.status_code == 302
    assert "drydock_device" not in answer.cookies


# Sign-in entry point: every sign-in uses the one method, and no page of a library bypasses it.


def test_pages_of_the_library_are_not_there(client: Client) -> None:
    ways = ["signup/", "email/", "password/reset/", "password/set/", "confirm-email/", "reauthenticate/", "2fa/"]
    assert {client.get(f"/accounts/{way}").status_code for way in ways} == {302}
    client.force_login(factories.admin())
    assert {client.get(f"/accounts/{way}").status_code for way in ways} == {404}
    for name in ("account_signup", "account_reset_password", "account_email", "socialaccount_connections"):
        with pytest.raises(NoReverseMatch):
            reverse(name)


def test_the_admin_has_no_form_of_its_own_for_sign_in_or_for_ones_password(client: Client) -> None:
    """The latter would take guesses at the old one without end, and leave no line on the timeline."""
    answer = client.post("/admin/login/?next=/admin/", {"username": "otto", "password": "x"})
    assert answer.status_code in (301, 302)
    assert answer["Location"] == "/accounts/login/?next=/admin/"
    ada = PersonFactory(username="ada", is_superuser=True, is_staff=True)
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


def test_the_admin_deletes_no_role_and_shows_no_secret(client: Client) -> None:
    """docs/dev/access/admin.csv has what it may do with each model, which tests/access holds against Django's admin."""
    client.force_login(PersonFactory(username="root", is_superuser=True, is_staff=True))
    group = Group.objects.get_or_create(name="admin")[0]
    client.post("/admin/auth/group/", {"action": "delete_selected", "_selected_action": group.pk, "post": "yes"})
    assert Group.objects.filter(name="admin").exists()
    machine = factories.Fleet().enrol("vm1").machine
    assert "credential_hash" not in client.get(f"/admin/fleet/machine/{machine.pk}/change/").content.decode()


def test_deactivated_user_cannot_sign_in(client: Client) -> None:
    User.objects.filter(pk=factories.operator().pk).update(is_active=False)
    answer = client.post("/accounts/login/", {"login": "otto", "password": "harbour-otto"})
    assert answer.status_code == 200
    assert "_auth_user_id" not in client.session


def test_the_documentation_tells_scanners_how_secrets_look() -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin" / "people.md").read_text(encoding="utf-8")
    found = re.search(r"match `(\\bdd_[^`]+)`", page)
    assert found
    for kind in ("dd", "join"):
        pattern = found[1].replace("dd_", f"{kind}_", 1)
        for _ in range(50):
            secret = new_secret(kind)
            assert re.findall(pattern, f'token = "{secret}"; {prefix_of(secret)}') == [secret]
