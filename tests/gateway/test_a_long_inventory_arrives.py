"""Large inventories: the gateway accepts one longer than any form, and limits how many it reads at once."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest
import requests
from pytest_django.plugin import DjangoDbBlocker

from fleet.api.views.machines import MAX_INVENTORY_BYTES
from fleet.domain.secrets import new_secret
from fleet.gateway.django_pages import BODY_BYTES, LARGE_AT_ONCE
from fleet.models import InventoryMachine
from tests.factories import admin
from tests.gateway.conftest import shared
from tests.gateway_process import Gateway
from tests.processes import wait_for
from tests.rows import TokenFactory

pytestmark = pytest.mark.flow
PLACE = "/api/v1/inventory/"


@pytest.fixture(scope="module")
def token(one_gateway: Gateway, django_db_blocker: DjangoDbBlocker) -> str:
    secret = new_secret("dd")
    with shared(one_gateway.urls, django_db_blocker):
        TokenFactory(secret=secret, user=admin(), scopes=["read", "admin"])
    return secret


def printed(count: int) -> bytes:
    """`az vm list` of so many machines, each as long as it is there."""
    group = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/harbour"
    machines = [
        {
            "id": f"{group}/providers/Microsoft.Compute/virtualMachines/pier-{number}",
            "name": f"pier-{number}",
            "type": "Microsoft.Compute/virtualMachines",
            "resourceGroup": "harbour",
            "location": "westeurope",
            "tags": {"note": "x" * 4000},
        }
        for number in range(count)
    ]
    return json.dumps(machines).encode()


def sent(gateway: Gateway, token: str, body: bytes | Iterator[bytes]) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return requests.post(gateway.url + PLACE, data=body, headers=headers, timeout=30)


def test_a_long_list_is_read(gateway: Gateway, token: str) -> None:
    body = printed(150)
    assert len(body) > 2 * BODY_BYTES
    assert sent(gateway, token, body).status_code == 200
    # In chunks without a stated total length.
    assert sent(gateway, token, iter([body[:1000], body[1000:]])).status_code == 200
    assert InventoryMachine.objects.filter(name__startswith="pier-").count() == 150


def test_other_addresses_take_no_more_than_before(gateway: Gateway, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    answer = requests.post(gateway.url + "/api/v1/rules/", data=b" " * (BODY_BYTES + 1), headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["type"]) == (413, "too-large")


def begun(gateway: Gateway, length: int) -> socket.socket:
    """A call that says how long its body is, and sends nothing of it yet."""
    url = urlsplit(gateway.url)
    connection = socket.create_connection((str(url.hostname), int(url.port or 80)), timeout=20)
    connection.sendall(f"POST {PLACE} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n".encode())
    return connection


def test_one_that_is_too_long_is_refused_before_it_is_here(gateway: Gateway) -> None:
    with closing(begun(gateway, MAX_INVENTORY_BYTES + 1)) as connection:
        answer = connection.recv(4096)
    assert b" 413 " in answer.splitlines()[0]
    assert b"application/problem+json" in answer


def test_excess_large_upload_gets_503(gateway: Gateway, token: str) -> None:
    def refused() -> requests.Response | None:
        answer = sent(gateway, token, printed(70))
        return answer if answer.status_code == 503 else None

    with ExitStack() as stack:
        for _ in range(LARGE_AT_ONCE - 1):
            stack.enter_context(closing(begun(gateway, 2 * BODY_BYTES)))

        def one_more() -> requests.Response | None:
            # Of those before it one may have come while the place of an earlier call was still taken.
            stack.enter_context(closing(begun(gateway, 2 * BODY_BYTES)))
            return refused()

        answer = wait_for(one_more, seconds=20, what="the places of long ones are taken")
        assert answer is not None
        assert (answer.json()["type"], "Retry-After" in answer.headers) == ("busy", True)
        # A short one needs no such place.
        assert sent(gateway, token, b"[]").status_code == 200
    wait_for(lambda: refused() is None, seconds=20, what="the places are free again")
