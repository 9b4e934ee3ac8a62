"""A header whose name has an underscore counts for nothing: WSGI takes it for the one with a hyphen, a proxy's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from fleet.embedded import Urls
from tests.gateway_process import running_gateway

pytestmark = [pytest.mark.flow]


def test_no_client_adds_to_what_a_trusted_proxy_says(servers: Urls, folder: Path) -> None:
    guesses = {"login": "nobody", "password": "guess"}
    with running_gateway(servers, folder, environment={"TRUSTED_PROXIES": "127.0.0.1"}) as gateway:

        def guess(forged: str) -> int:
            page = requests.get(f"{gateway.url}/accounts/login/", timeout=10)
            cookie = page.cookies["drydock_csrf"]
            headers = {"X-Forwarded-For": "203.0.113.7", "X_Forwarded_For": forged, "X-CSRFToken": cookie}
            cookies = {"drydock_csrf": cookie}
            address = f"{gateway.url}/accounts/login/"
            return requests.post(address, data=guesses, headers=headers, cookies=cookies, timeout=20).status_code

        # Each guess claims another address, and all of them count for the one that the proxy saw.
        # After the fifth it takes a second, after the sixth two: a slow machine may need one more to be too early.
        said = [guess(f"198.51.100.{number}") for number in range(9)]
        assert said[:5] == [200] * 5 and 429 in said[5:]
