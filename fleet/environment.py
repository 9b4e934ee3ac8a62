"""Reader of the settings in `fleet.configuration` that checks the form of each value."""

import os
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

from fleet.configuration import BY_NAME, SETTINGS, Setting
from fleet.domain.sign_on import issuer_fault

HOST = re.compile(r"[\w.-]+", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
# They are part of commands, which Azure limits.
MAX_CERTIFICATES = 16_384
FOR_EVER = "for ever"
MAX_DAYS = 36_500
TRUE = ("1", "yes", "true", "on")
FALSE = ("0", "no", "false", "off")


class Reader:
    """Reader of settings from environment variables. All methods raise ImproperlyConfigured, whose message names the
    setting.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def text(self, name: str) -> str:
        """Return the value without surrounding spaces, or the default if it is not set."""
        setting = BY_NAME[name]
        default = setting.default
        if setting in self.under_former_names:
            name = setting.former
        path = self.environment.get(f"{name}_FILE")
        if not path:
            return self.environment.get(name, default).strip() or default
        try:
            return Path(path).read_text(encoding="utf-8").strip() or default
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.") from error

    @property
    def under_former_names(self) -> list[Setting]:
        """Return the settings that are set only by their former name."""
        return [each for each in SETTINGS if self._is_set(each.former) and not self._is_set(each.name)]

    def _is_set(self, name: str) -> bool:
        return bool(name and (self.environment.get(name) or self.environment.get(f"{name}_FILE")))

    def whole(self, name: str) -> int:
        """Return a whole number above 0."""
        value = self.text(name)
        if not _is_decimal(value) or int(value) == 0:
            raise _not_a("whole number above zero", name, value)
        return int(value)

    def seconds(self, name: str, *, up_to: float | None = None) -> float:
        """Return a time in seconds, which may have a fraction: above 0, or with `up_to` from 0 to that value."""
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if up_to is None and not 0 < number < float("inf"):
            raise _not_a("number of seconds above zero", name, value)
        if up_to is not None and not 0 <= number <= up_to:
            raise ImproperlyConfigured(f"{name} has to be 0 to {up_to:g} seconds, not {value!r}.")
        return number

    def days(self, name: str) -> int | None:
        """Return a whole number of days; None for the value `for ever`."""
        value = self.text(name).lower()
        if value == FOR_EVER:
            return None
        if not _is_decimal(value) or not 0 < int(value) <= MAX_DAYS:
            raise ImproperlyConfigured(f"{name} has to be a number of days up to {MAX_DAYS}, or `{FOR_EVER}`.")
        return int(value)

    def archive(self, name: str) -> str:
        """Return the address of a folder or of a storage container; empty if not set. Errors omit the value, which may
        contain a key.
        """
        value = self.text(name)
        if not value:
            return value
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), 0
        is_folder = parts.scheme == "file" and not parts.netloc and len(parts.path) > 1 and not parts.query
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        is_container = parts.scheme == "https" or (parts.scheme == "http" and is_local)
        is_plain = parts.hostname and not parts.username and port != 0 and len(parts.path) > 1
        if not (is_folder or (is_container and is_plain)) or parts.fragment or ".." in parts.path:
            raise ImproperlyConfigured(
                f"{name} has to be file:///FOLDER, or the https address of a container with its signature."
            )
        return value

    def date(self, name: str) -> datetime | None:
        """Return the start of a day in UTC; None if not set."""
        value = self.text(name)
        try:
            return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC) if value else None
        except ValueError:
            raise _not_a("day such as 2027-03-31", name, value) from None

    def ids(self, name: str) -> list[str]:
        """Return UUIDs in lower case from a list separated by commas."""
        words = self.words(name)
        try:
            return [str(UUID(word)) for word in words]
        except ValueError:
            raise ImproperlyConfigured(f"{name} has to hold ids as Azure writes them, not {words!r}.") from None

    def folder(self, name: str) -> str:
        """Return the path of an existing folder; empty if not set."""
        value = self.text(name)
        if value and not Path(value).is_dir():
            raise ImproperlyConfigured(f"{name} names {value}, which is no folder.")
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name).lower()
        if value not in TRUE + FALSE:
            raise ImproperlyConfigured(f"{name} has to be `yes` or `no`, not {value!r}.")
        return value in TRUE

    def words(self, name: str) -> list[str]:
        """Return the parts of a list separated by commas, without empty ones."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def networks(self, name: str) -> list[str]:
        """Return IP addresses or networks from a list separated by commas, in their original spelling."""
        networks = self.words(name)
        for network in networks:
            try:
                ip_network(network, strict=False)
            except ValueError as error:
                raise ImproperlyConfigured(
                    f"{name} has to hold addresses or networks such as 10.0.0.0/8, not {network!r}."
                ) from error
        return networks

    def host_and_port(self, name: str) -> str:
        """Return `host:port`, with brackets around an IPv6 address; empty if not set."""
        value = self.text(name)
        host, _, port = value.rpartition(":")
        is_host = host.startswith("[") and host.endswith("]") if ":" in host else HOST.fullmatch(host)
        if value and not (is_host and _is_decimal(port) and 0 < int(port) < 65536):
            # A value that was meant as a URL may contain a password.
            raise ImproperlyConfigured(f"{name} has to be host:port, without a scheme or a login.")
        return value

    def issuer(self, name: str) -> str:
        """Return the issuer URL of single sign-on; empty if not set."""
        value = self.text(name)
        if value and issuer_fault(value) is not None:
            raise ImproperlyConfigured(
                f"{name} has to be one tenant's https address, without a login, and not a directory of many tenants."
            )
        return value

    def header(self, name: str) -> str:
        """Return the name of an HTTP header. Underscores are not accepted, because proxies treat them as dashes."""
        value = self.text(name)
        if not HEADER.fullmatch(value):
            raise ImproperlyConfigured(f"{name} has to be the name of a header, of letters, digits and dashes.")
        return value

    def readable_file(self, name: str) -> str:
        """Return the path of a readable file; empty if not set."""
        value = self.text(name)
        if value and not os.access(value, os.R_OK):
            raise ImproperlyConfigured(f"{name} names {value}, which cannot be read.")
        return value

    def certificates(self, name: str) -> str:
        """Return the certificates of a PEM file, without anything else that it holds; empty if not set."""
        path = self.readable_file(name)
        if not path:
            return ""
        found = "\n".join(CERTIFICATE.findall(Path(path).read_text(encoding="utf-8", errors="replace")))
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
        except (ssl.SSLError, ValueError):
            raise ImproperlyConfigured(f"{name} names {path}, which holds no certificates in PEM.") from None
        if len(found) > MAX_CERTIFICATES:
            raise ImproperlyConfigured(
                f"{name} names {path}, whose certificates are more than {MAX_CERTIFICATES} bytes."
            )
        return found

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in choices:
            raise ImproperlyConfigured(f"{name} has to be one of {', '.join(choices)}, not {value!r}.")
        return value

    def address(self, name: str, schemes: tuple[str, ...]) -> str:
        """Return a URL with one of these schemes, without a trailing slash; the default if not set."""
        value = self.text(name)
        if value and urlsplit(value).scheme not in schemes:
            # The value may contain a password, so the error repeats only its beginning.
            raise ImproperlyConfigured(
                f"{name} has to start with {' or '.join(scheme + '://' for scheme in schemes)}, not {value[:8]!r}."
            )
        return value.rstrip("/")


def _is_decimal(value: str) -> bool:
    return value.isascii() and value.isdecimal()


def _not_a(form: str, name: str, value: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} has to be a {form}, not {value!r}.")
