"""Entries carry the id and the address of the request behind them; only trusted proxies may say another address."""

from datetime import UTC, datetime
from ipaddress import ip_network

import pytest

from fleet.domain.addresses import address_of
from fleet.models import Entry
from tests import factories
from tests.api.conftest import Caller, caller

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.7", "", "192.0.2.7"),
        # No proxy in front is trusted: any client can send the header.
        ("192.0.2.7", "198.51.100.1", "192.0.2.7"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        # The client wrote the first part itself.
        ("10.0.0.1", "203.0.113.9, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.1, 10.2.2.2", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:51234", "198.51.100.1"),
        ("fd00::1", "[2001:db8::5]:443", "2001:db8::5"),
        ("fd00::1", "2001:db8::5", "2001:db8::5"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7:99:1", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, <script>", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("", "198.51.100.1", ""),
        ("unix:", "198.51.100.1", "unix:"),
    ],
)
def test_the_address_is_that_of_the_client_as_far_as_it_can_be_known(peer: str, forwarded: str, found: str) -> None:
    assert address_of(peer, forwarded, PROXIES) == found


@pytest.fixture
def admin(db: None) -> Caller:
    return caller(factories.admin())


def test_an_entry_carries_the_callers_own_id_and_address(admin: Caller) -> None:
    answer = admin.post("join-tokens/", {"comment": "x"}, X_Request_ID="deploy-7/a.b")
    assert answer["X-Request-ID"] == "deploy-7/a.b"
    made = Entry.objects.get(kind="token_created", via="api")
    assert (made.request_id, made.address) == ("deploy-7/a.b", "127.0.0.1")


@pytest.mark.parametrize("sent", ["", "two words", "line\tbreak", "x" * 129, "ü", '"'])
def test_an_id_that_is_none_is_replaced(admin: Caller, sent: str) -> None:
    answer = admin.post("join-tokens/", {"comment": "x"}, X_Request_ID=sent)
    assert len(answer["X-Request-ID"]) == 32
    assert Entry.objects.get(kind="token_created", via="api").request_id == answer["X-Request-ID"]


def test_what_is_written_after_a_request_names_none(admin: Caller) -> None:
    admin.post("join-tokens/", {"comment": "x"}, X_Request_ID="one")
    factories.Fleet(now=datetime.now(UTC))
    made = Entry.objects.get(kind="token_created", via="command", actor="the command line", why="tests")
    assert (made.request_id, made.address) == ("", "")
