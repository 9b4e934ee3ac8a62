"""The configured caches: `DRYDOCK_REDIS_CACHES`, or the tables `[[redis_caches]]` of the TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from drydock_agent.settings.loopback import is_loopback
from drydock_agent.wire import CACHE_HOSTS_WITHOUT_NOTIFICATIONS

TLS_PORT = 6380
PLAIN_PORT = 6379
TIERS = ("basic", "standard", "premium")
MANAGED_IDENTITY = "managed-identity"
# Permitted keys of a table, and of the query in an address (the other values are parts of the address).
KEYS = (
    "host", "port", "tls", "username", "password", "password_file", "entra", "tier", "divisor", "connect", "ca_file",
)  # fmt: skip
_IN_THE_ADDRESS = ("host", "port", "username", "password")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")


@dataclass(slots=True, frozen=True, kw_only=True)
class Cache:
    """A cache to which this machine listens. `host` is the name of the cache in the fleet; `connect` is the address to
    connect to if it differs.

    `entra` is empty for an access key or password, `managed-identity`, or the client id of one of several identities.
    """

    host: str
    port: int
    tls: bool
    username: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    entra: str = ""
    tier: str = ""
    divisor: int = 2
    connect: str = ""
    ca_file: str = ""

    @property
    def publishes(self) -> bool:
        """False if Azure publishes no notifications for this kind of cache."""
        return not self.host.endswith(CACHE_HOSTS_WITHOUT_NOTIFICATIONS)

    @property
    def socket(self) -> str:
        """The path of the Unix socket to connect to, or an empty string."""
        return self.connect.removeprefix("unix:") if self.connect.startswith("unix:") else ""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to connect to."""
        return _host_and_port(self.connect) if self.connect else (self.host, self.port)

    def secret(self) -> str:
        """Return the access key or password. A file is read again each time, so that a new key needs no restart.

        Raises `OSError` or `UnicodeDecodeError` if the file cannot be read.
        """
        return Path(self.password_file).read_text("utf-8").strip() if self.password_file else self.password


def read_caches(value: object) -> tuple[Cache, ...]:
    """Parse the value of the setting: addresses separated by spaces or commas, or a list of tables. Raises
    `ValueError`.
    """
    if isinstance(value, str):
        found = [_from_address(word) for word in re.split(r"[\s,]+", value) if word]
    elif isinstance(value, list) and all(isinstance(each, dict) for each in value):
        found = [_from_table(each) for each in value]
    else:
        raise ValueError(f"must be addresses or tables of caches, not {type(value).__name__}")
    names = [cache.host for cache in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"names {', '.join(sorted(twice))} twice")
    return tuple(found)


def _from_address(text: str) -> Cache:
    try:
        parts = urlsplit(text if "://" in text else f"rediss://{text}")
        port = parts.port
    except ValueError:
        raise ValueError("holds an address that cannot be read; reserved characters of a key must be escaped") from None
    # Messages do not contain the address, because it may contain the access key.
    if parts.scheme not in ("redis", "rediss") or parts.path.strip("/") or parts.fragment:
        raise ValueError(
            "holds an address that is not rediss://HOST:PORT?…; characters like / and # in a key are escaped"
        )
    pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    table: dict[str, Any] = dict(pairs)
    if inside := sorted(set(table) & set(_IN_THE_ADDRESS)):
        raise ValueError(f"has {inside[0]} in the query; put it before the query")
    table["host"] = parts.hostname or ""
    if port is not None:
        table["port"] = port
    table["username"], table["password"] = unquote(parts.username or ""), unquote(parts.password or "")
    return _from_table(table, secure=parts.scheme == "rediss")


def _from_table(table: Mapping[str, Any], *, secure: bool | None = None) -> Cache:
    if unknown := sorted(set(table) - set(KEYS)):
        raise ValueError(f"has {unknown[0]!r}, which no cache has; there are {', '.join(KEYS)}")
    values = {key: _text(table, key) for key in KEYS if key not in ("port", "tls", "divisor")}
    host = values["host"].lower().rstrip(".")
    if not _HOST.fullmatch(host):
        raise ValueError(f"needs the host name of each cache, and {host!r} is none")
    values["host"] = host
    if sum(bool(values[key]) for key in ("password", "password_file", "entra")) > 1:
        raise ValueError(f"gives {host} more than one of password, password_file and entra")
    values["tier"] = values["tier"].lower()
    if values["tier"] and values["tier"] not in TIERS:
        raise ValueError(f"gives {host} the tier {values['tier']!r}, which is none of {', '.join(TIERS)}")
    stated = _boolean(table, "tls", host)
    tls = stated if stated is not None else _secure(secure, values["connect"])
    cache = Cache(
        **values,
        port=_number(table, "port", TLS_PORT if tls else PLAIN_PORT, 65535, host),
        tls=tls,
        divisor=_number(table, "divisor", 2, 64, host),
    )
    if not cache.socket and not tls and stated is None and not is_loopback(cache.address[0]):
        raise ValueError(f"would send the key of {host} in the clear; say tls=false where that is wanted")
    return cache


def _secure(secure: bool | None, connect: str) -> bool:
    # A Unix socket is on this machine and has no certificate.
    return not connect.startswith("unix:") and secure is not False


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or any(ord(character) < 32 for character in value):
        raise ValueError(f"needs text without control characters for {key}")
    if key == "connect" and value and not value.startswith("unix:"):
        _host_and_port(value)
    if key == "ca_file" and value and not Path(value).is_file():
        raise ValueError(f"names {value}, which is not a file")
    return value.strip()


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"has connect={text}; it is HOST:PORT or unix:PATH")
    return host.strip("[]"), int(port)


def _number(table: Mapping[str, Any], key: str, default: int, most: int, host: str) -> int:
    value = table.get(key, default)
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise ValueError(f"gives {host} the {key} {value!r}; it is a whole number from 1 to {most}")
    return number


def _boolean(table: Mapping[str, Any], key: str, host: str) -> bool | None:
    value = table.get(key)
    found = {None: None, True: True, False: False, "true": True, "false": False}
    if isinstance(value, bool | str | None) and value in found:
        return found[value]
    raise ValueError(f"gives {host} {key}={value}; it is true or false")
