"""Loads the agent's settings: from the environment, else from a TOML file, else the default."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drydock_agent.logs import FORMATS
from drydock_agent.platforms import system
from drydock_agent.settings.caches import Cache, read_caches
from drydock_agent.settings.loopback import is_loopback

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SET_KINDS = ("availability_set", "scale_set", "cloud_service", "standalone")
DISCOVERY = ("auto", "always", "never")
SIGNED = ("auto", "always", "never")
DEFAULT_IMDS_URL = "http://169.254.169.254"
LEVELS = ("debug", "info", "warning", "error")
EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
DEFAULT_PREPARE_MINUTES = 60.0
MAX_PREPARE_MINUTES = 43200.0
_MINUTES = re.compile(r"now|\d{1,9}(\.\d{1,9})?", re.ASCII)


class ConfigError(Exception):
    """A setting is invalid. The message is a sentence for the user."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Settings:
    """All settings of one run. `docs/admin/agent.md` describes them."""

    fleet_url: str
    join_token: str
    state_dir: Path
    imds_url: str
    discover_endpoint: str
    availability_set: str
    machine_id: str
    resource_name: str
    node_name: str
    poll_seconds: float
    reminder_seconds: float
    hooks_dir: Path
    hook_timeout_seconds: float
    # By event type in lower case, those of all other types under an empty key. None: at once.
    prepare_minutes: Mapping[str, float | None]
    redis_caches: tuple[Cache, ...]
    signed_orders: str
    ca_file: str
    log_level: str
    log_format: str


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Load the settings from `environ` and from the TOML file that `DRYDOCK_CONFIG` names. Raises `ConfigError`."""
    environ = os.environ if environ is None else environ
    file = environ.get("DRYDOCK_CONFIG") or system.settings_file(environ)
    table = _toml(file)
    for name in table:
        if name not in SPEC:
            raise ConfigError(f"{file} has the unknown setting {name!r}.")
    values: dict[str, Any] = {}
    for name, (default, parse) in SPEC.items():
        variable = f"DRYDOCK_{name.upper()}"
        # An empty variable counts as not set, because unit files and compose files often contain empty ones.
        given: object = environ.get(variable) or table.get(name)
        if given is None or given == "":
            given = default(environ) if callable(default) else default
        try:
            values[name] = parse(given)
        except ValueError as error:
            raise ConfigError(f"{variable} {error}.") from None
    if not values["fleet_url"]:
        raise ConfigError("DRYDOCK_FLEET_URL is not set: it is the address of the Drydock backend.")
    return Settings(**values)


def _toml(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"DRYDOCK_CONFIG names {path}, which cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigError(f"DRYDOCK_CONFIG names {path}, which is not valid TOML: {error}.") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    if any(ord(character) < 32 for character in value):
        raise ValueError("must not contain control characters")
    return value.strip()


def _url(value: object) -> str:
    text = _text(value).rstrip("/")
    if not text:
        return text
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - a bad port raises only when it is asked for
    except ValueError as error:
        raise ValueError(f"is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be an http or https address, not {text!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must not carry a user, a query or a fragment")
    return text


def _fleet_url(value: object) -> str:
    text = _url(value)
    parts = urlsplit(text)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(f"must begin with https:// because plain HTTP is refused beyond loopback ({text})")
    return text


def _path(value: object) -> Path:
    return Path(_text(value)).expanduser()


def _file(value: object) -> str:
    text = _text(value)
    if text and not Path(text).is_file():
        raise ValueError(f"names {text}, which is not a file")
    return text


def _set(value: object) -> str:
    text = _text(value)
    kind, colon, name = text.partition(":")
    if colon and (kind not in SET_KINDS or not name):
        raise ValueError(f"must be a name or KIND:NAME with KIND one of {', '.join(SET_KINDS)}, not {text!r}")
    return text


def _machine_id(value: object) -> str:
    text = _text(value)
    if len(text) > 128:
        raise ValueError("must have at most 128 characters")
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return text


def _seconds(least: float, most: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError
            seconds = float(value)
        except ValueError:
            raise ValueError(f"must be a number of seconds, not {value!r}") from None
        if not least <= seconds <= most:
            raise ValueError(f"must be between {least:g} and {most:g} seconds, not {value}")
        return seconds

    return parse


def _prepare_minutes(value: object) -> dict[str, float | None]:
    """Parse minutes before NotBefore, or `now`: one for all event types, and others as `TYPE=MINUTES`."""
    names = {name.lower() for name in EVENT_TYPES}
    found: dict[str, float | None] = {}
    for word in filter(None, re.split(r"[\s,]+", str(value))):
        name, _, minutes = word.lower().rpartition("=")
        if name in found or (name and name not in names) or not _MINUTES.fullmatch(minutes):
            raise ValueError(f"must be minutes or now, and TYPE=MINUTES for {', '.join(EVENT_TYPES)}, not {value!r}")
        found[name] = None if minutes == "now" else float(minutes)
        if (found[name] or 0.0) > MAX_PREPARE_MINUTES:
            raise ValueError(f"must be at most {MAX_PREPARE_MINUTES:g} minutes, not {minutes}")
    return {"": DEFAULT_PREPARE_MINUTES, **found}


def _one_of(choices: Collection[str]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = _text(value).lower()
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text

    return parse


def _signed(value: object) -> str:
    text = _one_of(SIGNED)(value)
    if text == "always" and find_spec("cryptography") is None:
        raise ValueError("is always, which needs the package cryptography: install the agent with its extra “signed”")
    return text


# name: (default, parser). The variable is DRYDOCK_ plus the name in capitals; the TOML file uses the name itself.
SPEC: dict[str, tuple[str | Callable[[Mapping[str, str]], str], Callable[[object], Any]]] = {
    "fleet_url": ("", _fleet_url),
    "join_token": ("", _text),
    "state_dir": (system.state_dir, _path),
    "imds_url": (DEFAULT_IMDS_URL, _url),
    "discover_endpoint": ("auto", _one_of(DISCOVERY)),
    "availability_set": ("", _set),
    "machine_id": ("", _machine_id),
    "resource_name": ("", _text),
    "node_name": ("", _text),
    # The service allows five requests a second to all programs of a machine together.
    "poll_seconds": ("1", _seconds(0.5, 60)),
    "reminder_seconds": ("300", _seconds(10, 86400)),
    "hooks_dir": (system.hooks_dir, _path),
    "hook_timeout_seconds": ("300", _seconds(1, 86400)),
    "prepare_minutes": (f"{DEFAULT_PREPARE_MINUTES:g}", _prepare_minutes),
    "redis_caches": ("", read_caches),
    "signed_orders": ("auto", _signed),
    "ca_file": ("", _file),
    "log_level": ("info", _one_of(LEVELS)),
    "log_format": ("text", _one_of(FORMATS)),
}
