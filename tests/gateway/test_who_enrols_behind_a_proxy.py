"""Enrolment addresses: the limit and the audit use the machine's address, even behind a proxy."""

from __future__ import annotations

from typing import Any

from fleet.gateway.http import Request


def asked(*headers: tuple[bytes, bytes], peer: str = "127.0.0.1") -> Request:
    async def nobody() -> dict[str, Any]:
        raise AssertionError

    return Request({"type": "http", "client": (peer, 5), "headers": list(headers)}, nobody)


def test_who_enrols_behind_a_trusted_proxy_is_known_by_their_own_address(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["127.0.0.1", "10.0.0.0/24"]
    said = (b"x-forwarded-for", b"203.0.113.9, 198.51.100.4"), (b"x-forwarded-for", b"10.0.0.2")
    assert asked(*said).client == "198.51.100.4"
    # A stranger's word about itself counts for nothing.
    assert asked(*said, peer="192.0.2.1").client == "192.0.2.1"
    settings.TRUSTED_PROXIES = []
    assert asked(*said).client == "127.0.0.1"
