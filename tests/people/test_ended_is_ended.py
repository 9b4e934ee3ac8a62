"""Revoked access: enabling or admitting a person again revives no session, token or calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Q
from django.test import Client

from fleet.accounts import sign_on
from fleet.accounts.models import PersonSession, SignOn, SignOnGrant
from fleet.domain.people import ADMIN
from fleet.domain.sign_on import TOLD_BY_PROXY, HeaderLogin, ToldByProxy
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, Entry
from fleet.models.people import rights_of
from tests import accounts, factories
from tests.api.conftest import caller
from tests.dashboard.conftest import logged_in
from tests.people.directory import Directory, come

pytestmark = pytest.mark.django_db
NAME = "otto@contoso.example"


def now() -> datetime:
    return datetime.now(UTC)


def in_as(person: User) -> Client:
    client = logged_in(person)
    assert is_in(client)
    return client


def is_in(client: Client) -> bool:
    return client.get("/api/v1/me/").status_code == 200


def enable(name: str, *, active: bool) -> None:
    admin = User.objects.filter(groups__name=ADMIN).first() or factories.admin()
    accounts.change_person(username=name, active=active, now=now(), actor=factories.acting(admin))


def test_enabling_a_person_revives_no_session_token_or_calendar() -> None:
    otto, vera = factories.operator(), factories.viewer()
    browser, script, other = in_as(otto), caller(otto), in_as(vera)
    feed, secret = accounts.calendar(actor=factories.acting(otto), name="mine", now=now())
    address = f"/calendar/{secret}.ics"
    assert (script.get("me/").status_code, Client().get(address).status_code) == (200, 200)
    enable("otto", active=False)
    enable("otto", active=True)
    assert (is_in(browser), is_in(other)) == (False, True)
    assert script.get("me/").status_code == 401
    assert Client().get(address).status_code == 404
    feed.refresh_from_db()
    assert feed.ended_at is not None
    # What is made afterwards counts.
    assert is_in(in_as(User.objects.get(pk=otto.pk)))


def test_each_token_that_ended_has_its_line() -> None:
    otto = factories.operator()
    caller(otto), caller(otto)
    ApiToken.objects.create(
        prefix="dd_old", secret_hash="x", user=otto, name="old", created_at=now(), expires_at=now() - timedelta(days=1)
    )
    enable("otto", active=False)
    assert Entry.objects.filter(kind=EntryKind.TOKEN_ENDED.value).count() == 2
    assert ApiToken.objects.filter(user=otto, revoked_at=None).values_list("prefix", flat=True).get() == "dd_old"


def refused(entra: Directory, how: str, settings: Any) -> None:
    """Let Otto sign in once more from another browser, and be refused."""
    if how == "too-many-groups":
        settings.OIDC_CLAIM = "groups"
        entra.control("accounts", name="otto", groups=[f"group-{number}" for number in range(201)])
    else:
        entra.control("accounts", name="otto", roles=["Drydock.Nobody"])
    assert come(Client(), "otto").status_code == 403


@pytest.mark.parametrize("how", ["too-many-groups", "no-mapped-group"])
def test_a_refused_sign_on_ends_what_the_person_still_has(
    entra: Directory, browser: Client, how: str, settings: Any
) -> None:
    otto = User.objects.get(username=NAME)
    script, local = caller(otto), in_as(otto)
    address = f"/calendar/{accounts.calendar(actor=factories.acting(otto), name='mine', now=now())[1]}.ics"
    refused(entra, how, settings)
    assert rights_of(User.objects.get(pk=otto.pk)).role == ""
    assert not is_in(browser)
    assert not is_in(local)
    assert script.get("machines/").status_code == 401
    assert Client().get(address).status_code == 404
    # Once the provider admits him again, he signs in again; revoked sessions stay revoked.
    settings.OIDC_CLAIM = "roles"
    entra.control("accounts", name="otto", roles=["Drydock.Operator"])
    fresh = Client()
    assert come(fresh, "otto").status_code == 302
    assert is_in(fresh)
    assert not is_in(browser)
    assert not is_in(local)


def test_in_the_browser_itself_a_refusal_signs_out(entra: Directory, browser: Client) -> None:
    entra.control("accounts", name="otto", roles=["Drydock.Nobody"])
    assert come(browser, "otto").status_code == 403
    assert not is_in(browser)


def test_a_refusal_while_people_are_logged_in_is_for_good(entra: Directory, browser: Client) -> None:
    row = SignOn.objects.get(user__username=NAME)
    sign_on.refuse(Q(pk=row.pk), now=now())
    assert not Session.objects.exists()
    assert not PersonSession.objects.exists()
    assert come(Client(), "otto").status_code == 302
    assert not is_in(browser)


def test_a_line_of_the_mapping_that_comes_back_revives_no_session(entra: Directory, browser: Client) -> None:
    admin = factories.acting(User.objects.get(username="root"))
    sign_on.delete(actor=admin, grant_id=SignOnGrant.objects.get().pk, now=now())
    assert not is_in(browser)
    accounts.map_group(actor=admin, value="Drydock.Operator", group="operator", now=now())
    assert come(Client(), "otto").status_code == 302
    assert not is_in(browser)


def test_an_account_that_is_unlinked_and_linked_again_has_no_session(
    entra: Directory, browser: Client, settings: Any
) -> None:
    admin = factories.acting(User.objects.get(username="root"))
    row = SignOn.objects.get(user__username=NAME)
    subject = row.subject.removeprefix(settings.OIDC_SUBJECT_PREFIX)
    sign_on.unlink(actor=admin, sign_on_id=row.pk, now=now())
    sign_on.link(actor=admin, username=NAME, subject=subject, now=now())
    assert come(Client(), "otto").status_code == 302
    assert not is_in(browser)


@pytest.fixture
def proxied(settings: Any) -> Client:
    """Otto's browser, whom a proxy in front has signed in."""
    settings.PROXY_SIGN_IN = HeaderLogin((ip_network("10.0.0.1/32"),), "s" * 40, "x-remote-user", "x-remote-groups")
    factories.operator()
    admin = factories.acting(factories.admin())
    accounts.map_group(actor=admin, value="ops", group="operator", now=now())
    return Client()


def by_proxy(client: Client, *groups: str) -> int:
    return int(client.get("/api/v1/me/", **{TOLD_BY_PROXY: ToldByProxy("otto", groups)}).status_code)


def test_a_changed_mapping_counts_for_people_of_the_login_proxy_at_once(proxied: Client) -> None:
    assert by_proxy(proxied, "ops") == 200
    admin = factories.acting(User.objects.get(groups__name=ADMIN))
    sent, line = sign_on.ChangeGrantSerializer(data={"group": "viewer"}), SignOnGrant.objects.get()
    sign_on.change(sent, actor=admin, grant_id=line.pk, now=now())
    assert by_proxy(proxied, "ops") == 200
    assert rights_of(User.objects.get(username="otto")).role == "viewer"
    sign_on.delete(actor=admin, grant_id=SignOnGrant.objects.get().pk, now=now())
    assert by_proxy(proxied, "ops") == 403


def test_who_loses_all_groups_at_the_proxy_loses_every_session(proxied: Client) -> None:
    elsewhere = Client()
    assert (by_proxy(proxied, "ops"), by_proxy(elsewhere, "ops")) == (200, 200)
    assert by_proxy(proxied, "nobody") == 403
    assert not PersonSession.objects.exists()
