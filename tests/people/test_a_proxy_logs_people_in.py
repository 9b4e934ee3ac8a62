"""Sign-in by a proxy: each request acts as the user whom a trusted proxy names, and no other caller can name one."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.domain.sign_on import TOLD_BY_PROXY, HeaderLogin, ToldByProxy
from fleet.domain.trace import CALL, Call, Trace
from fleet.gateway.django_pages import _environ
from fleet.models.people import rights_of
from tests import accounts, factories
from tests.dashboard.conftest import text_of

pytestmark = pytest.mark.django_db
SECRET = "a-secret-that-takes-long-to-guess"


@pytest.fixture(autouse=True)
def believed(settings: Any) -> None:
    networks = (ip_network("10.0.0.1/32"),)
    settings.PROXY_SIGN_IN = HeaderLogin(networks, SECRET, "x-remote-user", "x-remote-groups")


def got(client: Client, told: ToldByProxy | None, address: str = "/machines/") -> Any:
    """As the gateway hands it on."""
    return client.get(address, **({TOLD_BY_PROXY: told} if told else {}))


def me(client: Client, told: ToldByProxy | None) -> str:
    answer = got(client, told, "/api/v1/me/")
    return str(answer.json().get("username", answer.status_code))


def test_each_request_is_of_whom_the_proxy_names() -> None:
    client = Client()
    factories.operator(), factories.viewer()
    assert me(client, ToldByProxy("otto", None)) == "otto"
    assert me(client, ToldByProxy("otto", None)) == "otto"
    assert me(client, ToldByProxy("vera", None)) == "vera"
    assert got(client, None)["Location"].startswith("/accounts/login/")
    assert me(client, None) == "401"


def test_unknown_and_blocked_names_are_refused(settings: Any) -> None:
    settings.EMERGENCY_ACCOUNT = "ada"
    factories.admin()
    User.objects.filter(pk=factories.operator().pk).update(is_active=False)
    for name in ("stranger", "otto", "ada", "OTTO"):
        answer = got(Client(), ToldByProxy(name, None))
        assert answer.status_code == 403, name
    assert "There is no user stranger" in text_of(got(Client(), ToldByProxy("stranger", None)))


def test_where_it_names_groups_the_mapping_says_what_they_may() -> None:
    admin = factories.acting(factories.admin())
    otto = factories.operator()
    accounts.map_group(actor=admin, value="ops", group="approver", now=factories.NOW, scopes=[("name", "web*")])
    client = Client()
    assert got(client, ToldByProxy("otto", ("ops", "x"))).status_code == 200
    found = rights_of(User.objects.get(pk=otto.pk))
    assert (found.role, found.scopes) == ("approver", (("name", "web*"),))
    assert got(client, ToldByProxy("otto", ("x",))).status_code == 403
    assert rights_of(User.objects.get(pk=otto.pk)).role == ""


@pytest.mark.parametrize(
    ("peer", "headers", "named"),
    [
        ("10.0.0.1", [(b"x-remote-user", b"otto"), (b"x-proxy-secret", SECRET.encode())], True),
        ("10.0.0.1", [(b"X_Remote_User", b"otto"), (b"x-proxy-secret", SECRET.encode())], False),
        ("10.0.0.9", [(b"x-remote-user", b"otto"), (b"x-proxy-secret", SECRET.encode())], False),
    ],
)
def test_the_gateway_hands_on_only_what_it_believes(peer: str, headers: list[tuple[bytes, bytes]], named: bool) -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": headers,
        "client": (peer, 1),
        "server": ("x", 80),
        "http_version": "1.1",
        CALL: Call(Trace.new()),
    }
    environ = _environ(scope, b"")
    assert (TOLD_BY_PROXY in environ) is named
    assert not [name for name in environ if name.startswith("HTTP_X_")]


def test_disabled_proxy_sign_in_refuses_names_and_ends_sessions(settings: Any) -> None:
    client = Client()
    factories.operator()
    assert me(client, ToldByProxy("otto", None)) == "otto"
    settings.PROXY_SIGN_IN = HeaderLogin((), "", "x-remote-user", "x-remote-groups")
    assert me(client, ToldByProxy("otto", None)) == "401"
