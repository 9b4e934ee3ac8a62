"""What users of single sign-on have besides a session ends with their rights: tokens, calendars and open streams."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from azure_simulator.entra.tokens import NOT_AGAIN
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Q
from django.test import Client
from pytest_django import Settings

from fleet.accounts import sign_on
from fleet.accounts.models import PersonSession, SignOn, SignOnGrant
from fleet.domain.people import ADMIN
from fleet.domain.sign_on import TOLD_BY_PROXY, HeaderLogin, ToldByProxy
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, Approval, Entry
from fleet.models.people import rights_of
from tests import accounts, factories
from tests.api.conftest import Caller, caller
from tests.dashboard.conftest import logged_in, text_of
from tests.people.directory import BACK, Directory, asked_for, come, pass_time, there

pytestmark = pytest.mark.django_db
NAME = "otto@contoso.example"


@pytest.fixture
def script(browser: Client) -> Caller:
    """A script that runs with Otto's token while he is signed out."""
    return caller(User.objects.get(username=NAME))


def may(script: Caller) -> tuple[bool, bool]:
    """Whether it reads, and whether it would approve what is not there."""
    reads = script.get("machines/").status_code
    writes = script.post("events/none/approvals/", {"comment": "drained"}).status_code
    assert reads in (200, 403) and writes in (404, 403), (reads, writes)
    return reads == 200, writes == 404


def test_signing_out_ends_no_token_and_the_provider_is_asked(entra: Directory, browser: Client, script: Caller) -> None:
    browser.post("/accounts/logout/")
    assert browser.get("/api/v1/me/").status_code in (401, 403)
    assert may(script) == (True, True)
    assert pass_time(11)["confirmed"] == 1
    assert may(script) == (True, True)
    # He leaves the company while no browser of his is open.
    entra.control("accounts", name="otto", enabled=False)
    assert pass_time(11)["refused"] == 1
    assert may(script) == (False, False)


@pytest.mark.parametrize("roles", [[], ["Drydock.Nobody"]])
def test_tokens_lose_what_a_user_loses(entra: Directory, browser: Client, script: Caller, roles: list[str]) -> None:
    entra.control("accounts", name="otto", roles=roles)
    assert may(script) == (True, True), "the provider was not queried yet"
    assert pass_time(11)["confirmed"] == 1
    assert may(script) == (False, False)
    assert browser.get("/api/v1/me/").status_code == 401
    # With the role comes back what the token may: it was not revoked.
    entra.control("accounts", name="otto", roles=["Drydock.Operator"])
    come(Client(), "otto")
    assert may(script) == (True, True)


def test_token_outlasts_a_provider_outage(entra: Directory, browser: Client, script: Caller, settings: Any) -> None:
    """Tokens continue even after sessions end. To stop one, an admin revokes it or removes the line of the mapping."""
    settings.OIDC_GRACE_SECONDS = 3600.0
    come(browser, "otto")
    entra.fault("down")
    pass_time(120)
    assert browser.get("/api/v1/me/").status_code in (401, 403)
    assert may(script) == (True, True)
    entra.control("calm")
    entra.control("accounts", name="otto", enabled=False)
    assert pass_time(2)["refused"] == 1
    assert may(script) == (False, False)


def test_none_is_asked_without_refresh_token(entra: Directory, browser: Client, script: Caller, settings: Any) -> None:
    settings.OIDC_SCOPES = ["openid"]
    come(browser, "otto")
    entra.control("accounts", name="otto", enabled=False)
    assert pass_time(14) == Counter()
    assert browser.get("/api/v1/me/").status_code == 200
    assert pass_time(2) == Counter()
    assert browser.get("/api/v1/me/").status_code in (401, 403)
    assert may(script) == (True, True)


# Re-authentication at the identity provider: single sign-on users prove themselves before approving where a set
# requires it. What they typed returns with them, and no old, foreign or forged proof counts.


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
    client = Client()
    assert come(client, "otto").status_code == 302
    return client


def approve(client: Client, **headers: str) -> Any:
    return client.post(APPROVE, {"comment": TYPED, "when": "now"}, headers=headers)


def leads_to(answer: Any) -> dict[str, str]:
    """The parameters of the link to the provider that this answer shows."""
    return dict(parse_qsl(urlsplit(answer.context["provider"]).query))


@pytest.mark.parametrize("headers", WAYS.values(), ids=WAYS.keys())
def test_what_was_typed_comes_back_from_the_provider_and_is_approved(otto: Client, headers: dict[str, str]) -> None:
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


# Revoked access: enabling or admitting a person again revives no session, token or calendar.


def now() -> datetime:
    return datetime.now(UTC)


def in_as(person: User) -> Client:
    client = logged_in(person)
    assert is_in(client)
    return client


def is_in(client: Client) -> bool:
    return client.get("/api/v1/me/").status_code == 200


def test_enabling_a_person_revives_no_session_token_or_calendar() -> None:
    otto, vera = factories.operator(), factories.viewer()
    browser, script, other = in_as(otto), caller(otto), in_as(vera)
    feed, secret = accounts.calendar(actor=factories.acting(otto), name="mine", now=now())
    address = f"/calendar/{secret}.ics"
    assert (script.get("me/").status_code, Client().get(address).status_code) == (200, 200)
    before = now() - timedelta(days=2)
    accounts.token(user=otto, name="old", scopes=["read"], now=before, expires_at=before + timedelta(days=1))
    admin = factories.acting(factories.admin())
    for active in (False, True):
        accounts.change_person(username="otto", active=active, now=now(), actor=admin)
    assert (is_in(browser), is_in(other)) == (False, True)
    assert script.get("me/").status_code == 401
    assert Client().get(address).status_code == 404
    feed.refresh_from_db()
    assert feed.ended_at is not None
    # A token that was over already was not revoked.
    assert Entry.objects.filter(kind=EntryKind.TOKEN_ENDED.value).count() == 1
    assert ApiToken.objects.get(user=otto, revoked_at=None).name == "old"
    # What is made afterwards counts.
    assert is_in(in_as(User.objects.get(pk=otto.pk)))


@pytest.mark.parametrize("claim", ["groups", "roles"])
def test_a_refused_sign_on_ends_all_that_is_left(entra: Directory, browser: Client, claim: str, settings: Any) -> None:
    """The account is in too many groups, or its role is not mapped; it signs in once more, from another browser."""
    otto = User.objects.get(username=NAME)
    script, local = caller(otto), in_as(otto)
    address = f"/calendar/{accounts.calendar(actor=factories.acting(otto), name='mine', now=now())[1]}.ics"
    settings.OIDC_CLAIM = claim
    values = [f"group-{number}" for number in range(201 if claim == "groups" else 1)]
    entra.control("accounts", name="otto", **{claim: values})
    assert come(Client(), "otto").status_code == 403
    assert rights_of(User.objects.get(pk=otto.pk)).role == ""
    assert not is_in(browser) and not is_in(local)
    assert script.get("machines/").status_code == 401
    assert Client().get(address).status_code == 404
    # Once the provider admits him again, he signs in again; revoked sessions stay revoked.
    settings.OIDC_CLAIM = "roles"
    entra.control("accounts", name="otto", roles=["Drydock.Operator"])
    fresh = Client()
    assert come(fresh, "otto").status_code == 302
    assert is_in(fresh) and not is_in(browser) and not is_in(local)
    # A refusal in the browser itself signs out there.
    entra.control("accounts", name="otto", roles=["Drydock.Nobody"])
    assert come(fresh, "otto").status_code == 403
    assert not is_in(fresh)


def test_a_refusal_while_people_are_logged_in_is_for_good(entra: Directory, browser: Client) -> None:
    row = SignOn.objects.get(user__username=NAME)
    sign_on.refuse(Q(pk=row.pk), now=now())
    assert not Session.objects.exists()
    assert not PersonSession.objects.exists()
    assert come(Client(), "otto").status_code == 302
    assert not is_in(browser)


def test_a_deleted_line_of_the_mapping_counts_at_once_and_revives_no_session(browser: Client, script: Caller) -> None:
    admin = factories.acting(User.objects.get(username="root"))
    line = SignOnGrant.objects.get(value="Drydock.Operator")
    sign_on.delete(actor=admin, grant_id=line.pk, now=now())
    assert (may(script), is_in(browser)) == ((False, False), False)
    accounts.map_group(actor=admin, value=line.value, group="operator", now=now())
    assert come(Client(), "otto").status_code == 302
    assert not is_in(browser)


def test_an_account_that_is_unlinked_and_linked_has_no_session(browser: Client, settings: Any) -> None:
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
    sign_on.delete(actor=admin, grant_id=line.pk, now=now())
    assert by_proxy(proxied, "ops") == 403


def test_who_loses_all_groups_at_the_proxy_loses_every_session(proxied: Client) -> None:
    elsewhere = Client()
    assert (by_proxy(proxied, "ops"), by_proxy(elsewhere, "ops")) == (200, 200)
    assert by_proxy(proxied, "nobody") == 403
    assert not PersonSession.objects.exists()
