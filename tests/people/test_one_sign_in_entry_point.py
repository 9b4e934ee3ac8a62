"""Sign-in entry point: every sign-in uses the one method, and no page of a library bypasses it."""

import re
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import NoReverseMatch, reverse

from fleet.domain.secrets import new_secret, prefix_of
from tests import factories

pytestmark = pytest.mark.django_db
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
