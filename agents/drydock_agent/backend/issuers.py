"""Download of issuer certificates that the backend needs, from two hosts of Microsoft only."""

from __future__ import annotations

import base64
import contextlib
import re
from urllib.parse import urlsplit

from drydock_agent import wire
from drydock_agent.connections import Connections, NoAnswer
from drydock_agent.version import user_agent

CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0
# No user name, port or query.
ADDRESS = re.compile(r"https?://([a-z.]+)/[\w./%()-]{1,300}", re.ASCII)


def is_issuer_url(url: str) -> bool:
    """Return whether a certificate may be downloaded from this URL."""
    return bool(ADDRESS.fullmatch(url)) and urlsplit(url).hostname in wire.ISSUER_HOSTS


def fetch(url: str, proxies: dict[str, str]) -> str:
    """Download a certificate and return it as base64. Raises `NoAnswer`."""
    if not is_issuer_url(url):
        raise NoAnswer(f"it wants a certificate of {url[:200]!r}, which is no address of Microsoft's")
    connections = Connections(headers={"User-Agent": user_agent()}, proxies=proxies)
    with contextlib.closing(connections):
        answer = connections.send(
            "GET", url, timeout=(CONNECT_SECONDS, READ_SECONDS), whole=READ_SECONDS, limit=wire.MAX_ATTESTED_BYTES
        )
    if answer.status != 200:
        raise NoAnswer(f"{url} answered {answer.status}")
    return base64.b64encode(answer.body).decode()
