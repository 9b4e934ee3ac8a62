"""A passkey's challenge counts once, for one purpose and one person, on the pages of this installation alone."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from fleet.accounts import verification
from fleet.operations import step_up
from tests import factories
from tests.people.soft_key import ORIGIN, SoftKey

pytestmark = pytest.mark.django_db
PASSWORD = "harbour-otto"
LOGIN, FACTOR, AGAIN = "/accounts/passkey/", "/accounts/second-factor/", "/you/again/"


@pytest.fixture(autouse=True)
def here(settings: Any) -> None:
    settings.BASE_URL = ORIGIN
    settings.ALLOWED_HOSTS = ["localhost"]


def browser() -> Client:
    return Client(SERVER_NAME="localhost", SERVER_PORT="8000")


def asked(client: Client) -> dict[str, Any]:
    """What a passkey is asked to sign by who signs in without a password."""
    found: dict[str, Any] = client.get(LOGIN).json()
    return found


def behind_the_password(client: Client) -> dict[str, Any]:
    """What the page of the second factor asks a passkey to sign."""
    answer = client.post("/accounts/login/", {"login": "otto", "password": PASSWORD})
    assert answer["Location"] == FACTOR
    return options_of(client.get(FACTOR))


def options_of(answer: Any) -> dict[str, Any]:
    found = re.search(r"\{[^\"<>]*(?:&quot;|\")publicKey.*?\}\}?(?=\")", answer.content.decode(), re.DOTALL)
    assert found is not None
    decoded: dict[str, Any] = json.loads(unescape(found[0]))
    return decoded


def is_in(client: Client) -> bool:
    return client.get("/api/v1/me/").status_code == 200


def test_passkey_without_a_pin_needs_the_password(otto: User) -> None:
    key, client = SoftKey(otto, verifies=False).registered(), browser()
    client.post(LOGIN, {"credential": key.assertion(asked(client))})
    assert not is_in(client)
    # The page of the second factor asks for no PIN; what it asked counts behind the password alone.
    options = behind_the_password(client)
    client.post(LOGIN, {"credential": key.assertion(options)})
    assert not is_in(client)
    options = options_of(client.get(FACTOR))
    assert client.post(FACTOR, {"credential": key.assertion(options)}).status_code == 302
    assert is_in(client)


def test_a_challenge_of_one_purpose_counts_for_no_other(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    options = behind_the_password(client)
    client.post(LOGIN, {"credential": key.assertion(options)})
    assert not is_in(client)
    client.get(FACTOR)
    assert client.post(FACTOR, {"credential": key.assertion(asked(client))}).status_code == 401
    assert not is_in(client)


def test_a_challenge_counts_once_whatever_the_answer_was(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    signed = key.assertion(asked(client))
    client.post(LOGIN, {"credential": "{}"})
    client.post(LOGIN, {"credential": signed})
    assert not is_in(client)
    signed = key.assertion(asked(client))
    assert client.post(LOGIN, {"credential": signed}).status_code == 302
    assert is_in(client)
    client.post("/accounts/logout/")
    client.post(LOGIN, {"credential": signed})
    assert not is_in(client)


def test_an_old_challenge_counts_no_more(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    signed = key.assertion(asked(client))
    session = client.session
    session[verification.CHALLENGES]["sign-in"]["at"] -= verification.CHALLENGE_SECONDS + 1
    session.save()
    client.post(LOGIN, {"credential": signed})
    assert not is_in(client)


def test_a_challenge_is_for_its_person(otto: User) -> None:
    """Of two people who share a browser, the second one's session holds nothing that the first was asked."""
    vera = factories.viewer()
    SoftKey(otto).registered()
    hers = SoftKey(vera).registered()
    client = browser()
    client.force_login(otto)
    options = options_of(client.get(AGAIN))
    kept = client.session[verification.CHALLENGES]
    client.force_login(vera)
    session = client.session
    session[verification.CHALLENGES] = kept
    session.save()
    assert client.post(AGAIN, {"credential": hers.assertion(options)}).status_code == 401
    assert not step_up.recent(step_up.last(client.session), now=timezone.now())


def test_only_a_page_of_this_very_address_may_have_asked(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    origins = """http://localhost http://localhost:8001 https://localhost:8000 http://evil.localhost:8000
        http://localhost:8000/ HTTP://LOCALHOST:8000 http://localhost:8000.evil.example"""
    wrong: dict[str, list[Any]] = {
        "origin": [*origins.split(), "", None],
        "crossOrigin": [True, "false", 0, None],
        "type": ["webauthn.create"],
        "challenge": ["bm90IHdoYXQgd2FzIGFza2Vk"],
    }
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        assert client.post(LOGIN, {"credential": key.assertion(asked(client), **{name: value})}).status_code == 302
        assert not is_in(client), (name, value)


def test_the_address_is_compared_as_browsers_write_it(settings: Any) -> None:
    for base_url, origin in {
        "https://drydock.example": "https://drydock.example",
        "https://Drydock.Example:443/": "https://drydock.example",
        "https://drydock.example:8443": "https://drydock.example:8443",
        "http://localhost:80": "http://localhost",
    }.items():
        settings.BASE_URL = base_url
        assert verification.own_origin() == origin


@pytest.mark.parametrize("wrong", [{}, {"origin": "http://evil.localhost:8000"}, {"crossOrigin": True}])
def test_a_passkey_is_added_on_the_page_that_asked(otto: User, wrong: dict[str, Any]) -> None:
    client = browser()
    client.force_login(otto)
    session = client.session
    step_up.note(session, at=timezone.now())
    session.save()
    challenge = options_of(client.get("/you/signing-in/passkey/"))["publicKey"]["challenge"]
    told = json.dumps(SoftKey(otto).registration(challenge, **wrong))
    answers = [
        client.post("/you/signing-in/passkey/add/", {"name": "key", "credential": told}).status_code for _ in range(2)
    ]
    added = Authenticator.objects.filter(user=otto, type="webauthn").count()
    # Once, and only where nothing was wrong with it.
    assert added == (0 if wrong else 1), answers
