"""Certificates of issuers that the backend wants: fetched from two hosts of Microsoft's, and from nowhere else."""

from __future__ import annotations

import base64
import contextlib
import re
from urllib.parse import urlsplit

from drydock_agent import wire
from drydock_agent.connections import Connections, NoAnswer
from drydock_agent.version import user_agent

CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0
# Nothing that leads elsewhere: no login, no port, no query.
ADDRESS = re.compile(r"https?://([a-z.]+)/[\w./%()-]{1,300}", re.ASCII)


def is_issuers(url: str) -> bool:
    """Whether this is an address from which a certificate may be fetched."""
    return bool(ADDRESS.fullmatch(url)) and urlsplit(url).hostname in wire.ISSUER_HOSTS


def fetch(url: str, proxies: dict[str, str]) -> str:
    """The certificate in base64. Raises `NoAnswer`."""
    if not is_issuers(url):
        raise NoAnswer(f"it wants a certificate of {url[:200]!r}, which is no address of Microsoft's")
    connections = Connections(headers={"User-Agent": user_agent()}, proxies=proxies)
    with contextlib.closing(connections):
        answer = connections.send(
            "GET", url, timeout=(CONNECT_SECONDS, READ_SECONDS), whole=READ_SECONDS, limit=wire.MAX_ATTESTED_BYTES
        )
    if answer.status != 200:
        raise NoAnswer(f"{url} answered {answer.status}")
    return base64.b64encode(answer.body).decode()
