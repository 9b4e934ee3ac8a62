"""Tokens of the API are no sessions: logging out ends none of them. They may as much as their person, whom the provider
and the mapping are asked about all the same.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import sign_on
from fleet.accounts.models import SignOnGrant
from tests import factories
from tests.api.conftest import Caller, caller
from tests.people.directory import Directory, come, pass_time

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


def test_logging_out_ends_no_token_and_the_provider_is_asked_on(
    entra: Directory, browser: Client, script: Caller
) -> None:
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
def test_who_loses_the_role_loses_what_the_token_may_with_the_next_question(
    entra: Directory, browser: Client, script: Caller, roles: list[str]
) -> None:
    entra.control("accounts", name="otto", roles=roles)
    assert may(script) == (True, True), "the provider was not queried yet"
    assert pass_time(11)["confirmed"] == 1
    assert may(script) == (False, False)
    assert browser.get("/api/v1/me/").status_code == 401
    # With the role comes back what the token may: it was not revoked.
    entra.control("accounts", name="otto", roles=["Drydock.Operator"])
    come(Client(), "otto")
    assert may(script) == (True, True)


def test_a_line_of_the_mapping_that_goes_counts_for_tokens_at_once(script: Caller) -> None:
    admin = factories.acting(User.objects.get(username="root"))
    sign_on.delete(actor=admin, grant_id=SignOnGrant.objects.get().pk, now=datetime.now(UTC))
    assert may(script) == (False, False)


def test_token_continues_while_the_provider_is_unavailable(
    entra: Directory, browser: Client, script: Caller, settings: Any
) -> None:
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


def test_without_a_refresh_token_the_provider_is_not_queried(
    entra: Directory, browser: Client, script: Caller, settings: Any
) -> None:
    settings.OIDC_SCOPES = ["openid"]
    come(browser, "otto")
    entra.control("accounts", name="otto", enabled=False)
    assert pass_time(14) == Counter()
    assert browser.get("/api/v1/me/").status_code == 200
    assert pass_time(2) == Counter()
    assert browser.get("/api/v1/me/").status_code in (401, 403)
    assert may(script) == (True, True)
