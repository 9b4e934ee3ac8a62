"""Settings as environment variables: how one is declared, the forms that values have, and how a value is read.

Functions below `Form`s check the text of a setting, and return its value. They raise ValueError with the rest of a
sentence that begins with the name of the setting.
"""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlsplit
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

from fleet.domain.sign_on import LOOPBACK, issuer_fault

HOST = re.compile(r"[\w.-]+", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
# They are part of commands, which Azure limits.
MAX_CERTIFICATES = 16_384
FOR_EVER = "for ever"
MAX_DAYS = 36_500
TRUE = ("1", "yes", "true", "on")
FALSE = ("0", "no", "false", "off")

T = TypeVar("T")

_chapters: list[str] = []


def chapter(title: str) -> None:
    """Begin a chapter of the documentation: it holds the settings that are declared from here on."""
    _chapters.append(title)


@dataclass(slots=True)
class Setting:
    """One setting: its chapter and help text, its form, its default as text, and the name that release 0.1.0 used."""

    chapter: str
    help: str
    form: Callable[[str], Any]
    default: str
    former: str
    name: str = ""

    def text(self, environment: Mapping[str, str]) -> str:
        """Return the value without surrounding spaces, or the default if it is not set. Raises ImproperlyConfigured."""
        name = self.former if self.is_former(environment) else self.name
        path = environment.get(f"{name}_FILE")
        if not path:
            return environment.get(name, "").strip() or self.default
        try:
            return Path(path).read_text(encoding="utf-8").strip() or self.default
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.") from error

    def value(self, environment: Mapping[str, str]) -> Any:
        """Return the value in its form. Raises ImproperlyConfigured, whose message names the setting."""
        text = self.text(environment)
        try:
            return self.form(text)
        except ValueError as error:
            raise ImproperlyConfigured(f"{self.name} {error}") from None

    def is_former(self, environment: Mapping[str, str]) -> bool:
        """Return whether it is set only by its former name."""

        def is_set(name: str) -> bool:
            return bool(name and (environment.get(name) or environment.get(f"{name}_FILE")))

        return is_set(self.former) and not is_set(self.name)


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """A form of settings: a call declares a setting whose value `read` returns. `options` are further arguments of
    `read`.
    """

    read: Callable[..., T]

    def __call__(self, purpose: str, default: str = "", *, former: str = "", **options: Any) -> T:
        # Who declares it sees the type of its value, as with a field of a dataclass.
        return cast(T, Setting(_chapters[-1], purpose, partial(self.read, **options), default, former))


@Form
def text(value: str) -> str:
    return value


@Form
def optional(value: str) -> str | None:
    """Return the text; None if not set."""
    return value or None


@Form
def whole(value: str, *, at_least: int = 1, at_most: float = float("inf")) -> int:
    """Return a whole number above 0. One outside of these bounds is replaced by the bound."""
    if not _is_decimal(value) or int(value) == 0:
        raise ValueError(f"has to be a whole number above zero, not {value!r}.")
    return int(min(max(int(value), at_least), at_most))


@Form
def whole_or_zero(value: str) -> int:
    """Return a whole number above 0; 0 if not set."""
    return whole.read(value) if value else 0


@Form
def seconds(value: str, *, up_to: float | None = None) -> float:
    """Return a time in seconds, which may have a fraction: above 0, or with `up_to` from 0 to that value."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if up_to is None and not 0 < number < float("inf"):
        raise ValueError(f"has to be a number of seconds above zero, not {value!r}.")
    if up_to is not None and not 0 <= number <= up_to:
        raise ValueError(f"has to be 0 to {up_to:g} seconds, not {value!r}.")
    return number


@Form
def days(value: str) -> int | None:
    """Return a whole number of days; None for the value `for ever`."""
    if value.lower() == FOR_EVER:
        return None
    if not _is_decimal(value) or not 0 < int(value) <= MAX_DAYS:
        raise ValueError(f"has to be a number of days up to {MAX_DAYS}, or `{FOR_EVER}`.")
    return int(value)


@Form
def archive(value: str) -> str:
    """Return the address of a folder or of a storage container; empty if not set. Errors omit the value, which may
    contain a key.
    """
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    is_folder = parts.scheme == "file" and not parts.netloc and len(parts.path) > 1 and not parts.query
    is_local = parts.hostname in LOOPBACK
    is_container = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    is_plain = parts.hostname and not parts.username and port != 0 and len(parts.path) > 1
    if value and (not (is_folder or (is_container and is_plain)) or parts.fragment or ".." in parts.path):
        raise ValueError("has to be file:///FOLDER, or the https address of a container with its signature.")
    return value


@Form
def date(value: str) -> datetime | None:
    """Return the start of a day in UTC; None if not set."""
    try:
        return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC) if value else None
    except ValueError:
        raise ValueError(f"has to be a day such as 2027-03-31, not {value!r}.") from None


@Form
def words(value: str) -> list[str]:
    """Return the parts of a list separated by commas, without empty ones."""
    return [word.strip() for word in value.split(",") if word.strip()]


@Form
def ids(value: str) -> frozenset[str]:
    """Return UUIDs in lower case from a list separated by commas."""
    found = words.read(value)
    try:
        return frozenset(str(UUID(word)) for word in found)
    except ValueError:
        raise ValueError(f"has to hold ids as Azure writes them, not {found!r}.") from None


@Form
def flag(value: str) -> bool:
    if value.lower() not in TRUE + FALSE:
        raise ValueError(f"has to be `yes` or `no`, not {value.lower()!r}.")
    return value.lower() in TRUE


@Form
def networks(value: str) -> list[str]:
    """Return IP addresses or networks from a list separated by commas, in their original spelling."""
    found = words.read(value)
    for network in found:
        try:
            ip_network(network, strict=False)
        except ValueError:
            raise ValueError(f"has to hold addresses or networks such as 10.0.0.0/8, not {network!r}.") from None
    return found


@Form
def host_and_port(value: str) -> str:
    """Return `host:port`, with brackets around an IPv6 address; empty if not set."""
    host, _, port = value.rpartition(":")
    is_host = host.startswith("[") and host.endswith("]") if ":" in host else HOST.fullmatch(host)
    if value and not (is_host and _is_decimal(port) and 0 < int(port) < 65536):
        # A value that was meant as a URL may contain a password.
        raise ValueError("has to be host:port, without a scheme or a login.")
    return value


@Form
def issuer(value: str) -> str:
    """Return the issuer URL of single sign-on; empty if not set."""
    if value and issuer_fault(value) is not None:
        raise ValueError("has to be one tenant's https address, without a login, and not a directory of many tenants.")
    return value


@Form
def header(value: str) -> str:
    """Return the name of an HTTP header. Underscores are not accepted, because proxies treat them as dashes."""
    if not HEADER.fullmatch(value):
        raise ValueError("has to be the name of a header, of letters, digits and dashes.")
    return value


@Form
def folder(value: str) -> str:
    """Return the path of an existing folder; empty if not set."""
    if value and not Path(value).is_dir():
        raise ValueError(f"names {value}, which is no folder.")
    return value


@Form
def readable_file(value: str) -> str:
    """Return the path of a readable file; empty if not set."""
    if value and not os.access(value, os.R_OK):
        raise ValueError(f"names {value}, which cannot be read.")
    return value


@Form
def certificates(value: str) -> str:
    """Return the certificates of a PEM file, without anything else that it holds; empty if not set."""
    if not (path := readable_file.read(value)):
        return ""
    found = "\n".join(CERTIFICATE.findall(Path(path).read_text(encoding="utf-8", errors="replace")))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError):
        raise ValueError(f"names {path}, which holds no certificates in PEM.") from None
    if len(found) > MAX_CERTIFICATES:
        raise ValueError(f"names {path}, whose certificates are more than {MAX_CERTIFICATES} bytes.")
    return found


@Form
def one_of(value: str, *, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"has to be one of {', '.join(choices)}, not {value!r}.")
    return value


@Form
def address(value: str, *, schemes: tuple[str, ...] = ("http", "https")) -> str:
    """Return a URL with one of these schemes, without a trailing slash; empty if not set."""
    if value and urlsplit(value).scheme not in schemes:
        # The value may contain a password, so the error repeats only its beginning.
        raise ValueError(f"has to start with {' or '.join(scheme + '://' for scheme in schemes)}, not {value[:8]!r}.")
    return value.rstrip("/")


def _is_decimal(value: str) -> bool:
    return value.isascii() and value.isdecimal()
