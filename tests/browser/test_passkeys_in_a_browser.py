"""The whole way of a passkey in a real Chromium with an authenticator of its own: added, logged in by, asked for behind
the password, asked for again, removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from playwright.sync_api import expect

from tests import factories
from tests.browser.conftest import OpenPage
from tests.factories import Fleet
from tests.gateway_process import Gateway, running_gateway

pytestmark = pytest.mark.browser
PASSWORD = "a pier of green heart"


@pytest.fixture
def by_name(gateway: Gateway, tmp_path: Path) -> Iterator[Gateway]:
    """A server that is called by a name: passkeys belong to one, and count for the address in BASE_URL alone."""
    with running_gateway(gateway.urls, tmp_path, host="localhost") as found:
        yield found


def test_passkey_is_added_signs_in_and_is_removed(fleet: Fleet, open_page: OpenPage, by_name: Gateway) -> None:
    watched = open_page("/", on=by_name)
    page = watched.page
    otto = factories.operator()
    # As the server keeps it, which is a process of its own.
    otto.password = PBKDF2PasswordHasher().encode(PASSWORD, "salt")
    otto.save()
    watched.url = watched.url.replace("127.0.0.1", "localhost")
    page.context.clear_cookies()
    calls = page.context.new_cdp_session(page)
    calls.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    made = calls.send(
        "WebAuthn.addVirtualAuthenticator",
        {"options": {**options, "isUserVerified": True, "automaticPresenceSimulation": True}},
    )
    watched.open("/accounts/login/?next=/you/signing-in/")
    page.get_by_label("Name").fill("otto")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("What do you call it?").fill("Laptop <b>")
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_role("heading", name="Your recovery codes")).to_be_visible()
    expect(page.get_by_role("row", name="Laptop <b>")).to_be_visible()
    found = calls.send("WebAuthn.getCredentials", {"authenticatorId": made["authenticatorId"]})
    assert len(found["credentials"]) == 1

    # By itself it lets in, with neither a name nor a password.
    page.context.clear_cookies()
    watched.open("/accounts/login/?next=/sets/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Availability sets")).to_be_visible()

    # Behind the password it is the second factor.
    page.context.clear_cookies()
    watched.open("/accounts/login/?next=/you/signing-in/")
    page.get_by_label("Name").fill("otto")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Use your passkey").click()

    page.get_by_role("button", name="Remove Laptop").click()
    expect(page.get_by_text("None yet.")).to_be_visible()
    # It is on the machine still, and opens nothing here.
    page.context.clear_cookies()
    watched.open("/accounts/login/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The passkey was not accepted.")
    watched.quiet()
