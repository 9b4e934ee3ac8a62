"""Single sign-on: the provider admits the users in the mapping, with their current rights, and no forgery succeeds."""

import re
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from azure_simulator.entra.accounts import everybody
from azure_simulator.entra.tokens import LIES, NOT_AGAIN
from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import provider, sign_on
from fleet.accounts.models import SignOn, SignOnGrant
from fleet.accounts.provider import ProviderError, Why
from fleet.domain.reasons import Refused
from fleet.domain.sign_on import Identity
from fleet.models import Entry
from fleet.models.people import rights_of
from tests import accounts, factories
from tests.approvals.racing import thread_group
from tests.dashboard.conftest import text_of
from tests.people.conftest import BASE
from tests.people.directory import BACK, Directory, asked_for, come, pass_time, there
from tests.processes import free_port, running, wait_for
from tests.words import refused

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)


def me(client: Client) -> Any:
    answer = client.get("/api/v1/me/")
    return answer.json() if answer.status_code == 200 else None


# The way in


def test_mapped_user_is_created_and_redirected_back(entra: Directory, client: Client) -> None:
    answer = come(client, "otto", next="/machines/?q=web")
    assert (answer.status_code, answer["Location"]) == (302, "/machines/?q=web")
    found = me(client)
    assert (found["username"], found["group"]) == ("otto@contoso.example", "operator")
    made = Entry.objects.get(kind="person_changed")
    assert (made.actor, made.after["groups"]) == ("Drydock", ["operator"])
    assert factories.told(made).data["person"] == "otto@contoso.example"
    row = SignOn.objects.get()
    assert row.subject.startswith("6babcaad-604b-40ac-a9d7-9fd97c0b779f:")
    # What the database holds of the refresh token opens nothing.
    assert row.read_refresh_token() not in ("", row.refresh_token)
    assert not User.objects.get(username="otto@contoso.example").has_usable_password()


def test_unmapped_user_is_refused_and_listed_for_admins(entra: Directory, client: Client) -> None:
    answer = come(client, "nora")
    assert answer.status_code == 403
    assert "The mapping gives no rights to the roles or groups" in text_of(answer)
    assert me(client) is None
    assert not User.objects.filter(username__contains="nora").exists()
    assert SignOn.objects.get(user=None).name == "nora@contoso.example"


def test_a_person_is_linked_beforehand_by_an_admin_and_never_by_name(entra: Directory, client: Client) -> None:
    factories.operator("otto@contoso.example")
    assert come(client, "otto").status_code == 302
    assert me(client)["username"] == "otto@contoso.example-2"
    anna, admin = factories.viewer("anna"), factories.acting(User.objects.get(username="root"))
    sign_on.link(actor=admin, username="anna", subject=everybody()["ada"].oid.upper(), now=NOW)
    other = Client()
    come(other, "ada")
    assert (me(other)["username"], me(other)["group"]) == ("anna", "admin")
    assert rights_of(User.objects.get(pk=anna.pk)).role == "admin"


@pytest.mark.parametrize(
    "wanted", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_foreign_next_address_is_ignored(entra: Directory, client: Client, wanted: str) -> None:
    assert come(client, "otto", next=wanted)["Location"] == "/"


def test_the_address_adds_nothing_to_what_the_provider_is_asked(entra: Directory, client: Client) -> None:
    asked = asked_for(
        client, process="connect", scope="admin", auth_params="redirect_uri=https://evil.example&prompt=none"
    )
    assert asked["redirect_uri"] == f"http://127.0.0.1:8000{BACK}"
    assert "prompt" not in asked
    assert set(asked["scope"].split()) == {"openid", "profile", "email", "offline_access"}
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["nonce"]) > 20


# Forgeries


@pytest.mark.parametrize("lie", [lie for lie in LIES if lie not in NOT_AGAIN])
def test_invalid_id_token_admits_no_user(entra: Directory, client: Client, lie: str) -> None:
    entra.fault(lie)
    answer = come(client, "otto")
    assert answer.status_code == 403
    assert me(client) is None
    assert not SignOn.objects.exists()
    # The same person, a moment later and without the lie.
    assert come(client, "otto").status_code == 302


def test_unrequested_callback_is_refused(entra: Directory, client: Client) -> None:
    theirs = there(asked_for(Client()), "otto")
    for said in (theirs, {"code": theirs["code"]}, {"state": theirs["state"]}, {}, {**theirs, "state": "x" * 16}):
        assert client.get(BACK, said).status_code == 403
    assert me(client) is None
    assert "token" not in entra.asked()[-3:]


def test_a_code_and_its_state_count_once_and_for_one_sign_in(entra: Directory, client: Client) -> None:
    said = there(asked_for(client), "otto")
    assert client.get(BACK, said).status_code == 302
    client.post("/accounts/logout/")
    assert client.get(BACK, said).status_code == 403
    # With a state of its own the code is still the old one.
    again = asked_for(client)
    assert client.get(BACK, {**said, "state": again["state"]}).status_code in (403, 503)
    # An attacker puts a code of their own under a state of the victim: PKCE and nonce belong to another sign-in.
    mine, theirs = asked_for(client), there(asked_for(Client()), "otto")
    assert client.get(BACK, {"code": theirs["code"], "state": mine["state"]}).status_code in (403, 503)
    assert me(client) is None


def test_cancelled_sign_in_and_too_many_groups_are_explained(entra: Directory, client: Client, settings: Any) -> None:
    cancelled = client.get(BACK, {"error": "access_denied", "state": asked_for(client)["state"]})
    settings.OIDC_CLAIM = "groups"
    for answer, words in ((cancelled, "cancelled"), (come(client, "gus"), "more groups")):
        assert (answer.status_code, words in text_of(answer)) == (403, True)


# The provider rotates, hangs and goes away


def test_keys_rotate_and_unknown_ones_are_looked_for_once_a_minute(entra: Directory, client: Client) -> None:
    come(client, "otto")
    entra.control("keys/rotate")
    address = provider.configuration()["jwks_uri"]
    keys, fetched_at = provider._known[address]
    provider._known[address] = keys, fetched_at - provider.KEYS_EVERY_SECONDS
    assert come(Client(), "otto").status_code == 302
    before = entra.asked().count("keys")
    for _ in range(3):
        entra.fault("unknown-key")
        assert come(Client(), "otto").status_code == 403
    assert entra.asked().count("keys") == before


@pytest.mark.parametrize("trouble", ["hang", "cut", "down", "reset"])
def test_failing_provider_delays_no_user(
    entra: Directory, client: Client, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = there(asked_for(client), "otto")
    monkeypatch.setattr(provider, "STEP_SECONDS", 0.2)
    entra.fault(trouble)
    answer = client.get(BACK, said)
    assert (answer.status_code, answer["Retry-After"]) == (503, "10")
    assert "does not answer" in text_of(answer)
    assert me(client) is None
    # A later sign-in succeeds.
    assert come(client, "otto").status_code == 302


@contextmanager
def dripping() -> Iterator[str]:
    """A server that sends a byte now and then, without end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        over = threading.Event()

        def drip() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not over.wait(0.02):
                    peer.sendall(b"{")

        thread = threading.Thread(target=drip)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def test_an_answer_that_drips_is_given_up_and_few_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "STEP_SECONDS", 0.1)
    with dripping() as url, provider.exchange(), pytest.raises(ProviderError) as caught, provider.Session() as session:
        session.get(url)
    assert caught.value.why is Why.AWAY
    with provider.exchange(), provider.exchange(), pytest.raises(ProviderError) as busy, provider.exchange():
        pass
    assert busy.value.why is Why.BUSY
    with provider.exchange():
        pass


def test_a_provider_that_names_or_leads_elsewhere_is_refused(entra: Directory, client: Client, settings: Any) -> None:
    found = provider.configuration()
    evil = "http://evil.example/token"
    for wrong in (
        *({"issuer": "https://evil.example"}, {"token_endpoint": evil}, {"jwks_uri": ""}),
        {"jwks_uri": "https://[::1"},
    ):
        with pytest.raises(ProviderError) as caught:
            provider._checked({**found, **wrong})
        assert caught.value.why is Why.WRONG
    provider._known[found["jwks_uri"]] = {"keys": 5}, time.monotonic()
    with pytest.raises(ProviderError):
        provider._key({"alg": "RS256", "kid": "x"})
    settings.OIDC_ISSUER = settings.OIDC_ISSUER.replace("/v2.0", "/v2.1")
    assert client.get("/accounts/sign-on/").status_code == 503


# Changes while a user is signed in.


def test_two_first_logins_at_the_same_time_make_one_person(entra: Directory, transactional_db: None) -> None:
    otto = Identity("https://login.example", "s-otto", "otto", ("Drydock.Operator",))
    with thread_group(4) as group:
        assert len(set(group.at_once(*[partial(sign_on.arrive, otto, now=NOW)] * 4))) == 1
    assert User.objects.filter(username__startswith="otto").count() == 1


def test_who_joins_too_many_groups_is_signed_out_at_the_check(entra: Directory, client: Client, settings: Any) -> None:
    settings.OIDC_CLAIM = "groups"
    accounts.map_group(actor=factories.acting(factories.admin("root")), value="group-1", group="operator", now=NOW)
    entra.control("accounts", name="otto", groups=["group-1"])
    come(client, "otto")
    assert me(client)["group"] == "operator"
    entra.control("accounts", name="otto", groups=[f"group-{number}" for number in range(201)])
    assert pass_time(11)["refused"] == 1
    assert me(client) is None


def test_the_provider_is_asked_again_and_what_it_says_counts(entra: Directory, client: Client) -> None:
    come(client, "otto")
    assert pass_time(9) == Counter()
    first = SignOn.objects.get().read_refresh_token()
    assert pass_time(2)["confirmed"] == 1
    # The next one is kept: the old one is good for nothing any more.
    assert SignOn.objects.get().read_refresh_token() not in ("", first)
    entra.control("accounts", name="otto", roles=["Drydock.Admin"])
    assert pass_time(11)["confirmed"] == 1
    assert me(client)["group"] == "admin"
    entra.control("accounts", name="otto", enabled=False)
    assert pass_time(11)["refused"] == 1
    assert me(client) is None
    assert rights_of(User.objects.get(username="otto@contoso.example")).role == ""
    assert come(Client(), "ada").status_code == 302


def test_a_mapping_that_is_emptied_ends_sessions_at_once_but_leaves_an_admin(entra: Directory, client: Client) -> None:
    come(client, "otto")
    admins = Client()
    come(admins, "ada")
    root = factories.acting(User.objects.get(username="root"))
    User.objects.filter(username="root").update(is_active=False)
    lines = {one.value: one.pk for one in SignOnGrant.objects.all()}
    sign_on.delete(actor=root, grant_id=lines["Drydock.Operator"], now=NOW)
    assert me(client) is None
    assert [row.read_refresh_token() != "" for row in SignOn.objects.order_by("name")] == [True, False]
    with refused("last-admin"):
        sign_on.delete(actor=root, grant_id=lines["Drydock.Admin"], now=NOW)
    assert me(admins)["group"] == "admin"


def test_sessions_outlast_an_outage_for_the_stated_time(entra: Directory, client: Client, settings: Any) -> None:
    settings.OIDC_GRACE_SECONDS = 3600.0
    come(client, "otto")
    for minutes in (11, 30):
        entra.fault("down")
        assert pass_time(minutes)["unavailable"] == 1
        assert me(client)["group"] == "operator"
    assert "stays valid until" in text_of(client.get("/machines/"))
    entra.fault("down")
    pass_time(40)
    assert me(client) is None
    answer = client.get("/machines/")
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=%2Fmachines%2F")


def test_expired_client_secret_ends_no_session(entra: Directory, client: Client, settings: Any) -> None:
    come(client, "otto")
    settings.OIDC_CLIENT_SECRET = "the old one"
    assert pass_time(11)["unavailable"] == 1
    assert me(client)["group"] == "operator"


# Proving it again, and logging out


def test_logging_out_leads_to_the_providers_own(entra: Directory, client: Client) -> None:
    come(client, "otto")
    answer = client.post("/accounts/logout/", follow=True)
    assert "/accounts/sign-on/end/" in answer.content.decode()
    assert me(client) is None
    there = client.get("/accounts/sign-on/end/")["Location"]
    assert there.startswith(f"{entra.issuer}/logout?")
    assert "post_logout_redirect_uri=http%3A%2F%2F127.0.0.1%3A8000%2Faccounts%2Flogin%2F" in there


def test_without_a_provider_there_is_no_way_in(client: Client) -> None:
    for path in ("", "back/", "end/"):
        # As any unknown address does for a visitor who is not signed in.
        assert client.get(f"/accounts/sign-on/{path}")["Location"].startswith("/accounts/login/?next=")
    assert "single sign-on" not in text_of(client.get("/accounts/login/"))


def test_what_is_left_running_is_little() -> None:
    deadline = time.monotonic() + 10
    while any(thread.name == "provider" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sum(thread.name == "provider" for thread in threading.enumerate()) <= 1


# Local accounts next to single sign-on.


def test_disabled_passwords_admit_the_emergency_account_alone(entra: Directory, client: Client, settings: Any) -> None:
    factories.admin("glass"), factories.operator("olga")
    settings.LOCAL_PASSWORDS, settings.EMERGENCY_ACCOUNT = False, "glass"
    for name, to in (("olga", "/accounts/login/?out=passwords"), ("glass", "/")):
        assert me(client) is None
        assert client.post("/accounts/login/", {"login": name, "password": f"harbour-{name}"})["Location"] == to
    told = Entry.objects.get(kind="break_glass_used")
    assert factories.told(told).data == {"person": "glass", "from_address": "127.0.0.1"}
    otto = Client()
    come(otto, "otto")
    assert "The emergency account glass was used" in text_of(otto.get("/machines/"))
    # It must work without the provider, so no admin can link it to an account there.
    with pytest.raises(Refused):
        sign_on.link(actor=factories.acting(factories.admin("ada2")), username="glass", subject="x", now=NOW)


# Against a certified provider of others: sign-in, return, re-authentication and sign-out work.


@pytest.fixture
def issuer(tmp_path: Path, settings: Any) -> Iterator[str]:
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("no Node and npm here; Debian has both as packages")
    shutil.copytree(Path(__file__).parent / "conforming", tmp_path, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=tmp_path, check=True)
    port = free_port()
    command = ["node", "provider.js", str(port), f"{BASE}{BACK}", f"{BASE}/accounts/login/"]
    with running(command, environment={}, log=tmp_path / "provider.log", cwd=tmp_path) as process:
        wait_for(lambda: "listening" in process.said(), seconds=60, what="the provider listens")
        settings.BASE_URL = BASE
        settings.OIDC_ISSUER = settings.OIDC_SUBJECT_PREFIX = f"http://127.0.0.1:{port}"
        settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = "drydock", "a-secret-of-drydock-for-the-tests"
        provider.forget()
        yield settings.OIDC_ISSUER
        provider.forget()


def logged_in_there(browser: requests.Session, address: str, name: str) -> dict[str, str]:
    """Return the provider's parameters for the way back, after a user has signed in and consented there."""
    answer = browser.get(address, timeout=10, allow_redirects=False)
    for _ in range(10):
        if answer.is_redirect:
            there = requests.compat.urljoin(answer.url, answer.headers["Location"])
            if there.startswith(BASE):
                return dict(parse_qsl(urlsplit(there).query))
            answer = browser.get(there, timeout=10, allow_redirects=False)
            continue
        form = re.search(r'action="([^"]+)"', answer.text)
        prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
        assert form is not None and prompt is not None, answer.text
        said = {"prompt": prompt[1], "login": name, "password": "any"}
        answer = browser.post(
            requests.compat.urljoin(answer.url, form[1]), data=said, timeout=10, allow_redirects=False
        )
    raise AssertionError(f"The provider leads nowhere: {answer.url}")


@pytest.mark.long
@pytest.mark.node
def test_user_signs_in_is_checked_again_and_signs_out_at_the_provider(issuer: str, client: Client) -> None:
    SignOnGrant.objects.create(value="Drydock.Operator", group="operator", created_at=datetime.now(UTC))
    stranger = Client()

    def come(client: Client, name: str) -> Any:
        return client.get(BACK, logged_in_there(requests.Session(), asked_for(client)[""], name))

    assert come(client, "otto").status_code == 302
    me = client.get("/api/v1/me/").json()
    assert (me["username"], me["group"]) == ("otto@another.example", "operator")
    # A user without a role here has an account at the provider and no access.
    come(stranger, "guest")
    assert stranger.get("/api/v1/me/").status_code == 401

    ottos = SignOn.objects.filter(user__username="otto@another.example")
    first = ottos.get().read_refresh_token()
    assert first
    earlier = datetime.now(UTC) - timedelta(minutes=11)
    ottos.update(next_check_at=earlier, checked_at=earlier)
    assert provider.refresh(now=datetime.now(UTC))["confirmed"] == 1
    # The provider issues a new token each time, and revokes all of them if a client presents an old one.
    assert ottos.get().read_refresh_token() not in ("", first)

    client.post("/accounts/logout/")
    there = client.get("/accounts/sign-on/end/")["Location"]
    asked = requests.get(there, timeout=10)
    assert asked.status_code == 200 and "logout" in asked.text.lower()
    assert client.get("/api/v1/me/").status_code == 401
