"""Single sign-on against a certified third-party provider: sign-in, return, re-authentication and sign-out work."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from django.test import Client

from fleet.accounts import provider
from fleet.accounts.models import SignOn, SignOnGrant
from tests.people.conftest import BASE
from tests.people.directory import BACK, asked_for
from tests.processes import free_port, running, wait_for

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.long,
    pytest.mark.node,
    pytest.mark.skipif(
        not (shutil.which("node") and shutil.which("npm")), reason="no Node and npm here; Debian has both as packages"
    ),
]
HERE = Path(__file__).parent / "conforming"
AFTER = f"{BASE}/accounts/login/"


@pytest.fixture
def issuer(tmp_path: Path, settings: Any) -> Iterator[str]:
    shutil.copytree(HERE, tmp_path, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=tmp_path, check=True)
    port = free_port()
    command = ["node", "provider.js", str(port), f"{BASE}{BACK}", AFTER]
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


def come(client: Client, name: str) -> Any:
    return client.get(BACK, logged_in_there(requests.Session(), asked_for(client)[""], name))


def test_user_signs_in_is_checked_again_and_signs_out_at_the_provider(issuer: str) -> None:
    SignOnGrant.objects.create(value="Drydock.Operator", group="operator", created_at=datetime.now(UTC))
    client, stranger = Client(), Client()
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


def test_what_is_brought_back_without_its_question_is_refused(issuer: str) -> None:
    SignOnGrant.objects.create(value="Drydock.Operator", group="operator", created_at=datetime.now(UTC))
    client, thief = Client(), Client()
    back = logged_in_there(requests.Session(), asked_for(client)[""], "otto")
    assert thief.get("/api/v1/me/").status_code == 401
    thief.get(BACK, back)
    # Neither the state nor the proof of the code is this browser's.
    assert thief.get("/api/v1/me/").status_code == 401
