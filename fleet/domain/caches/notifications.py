"""Parser for one message of the Redis channel `AzureRedisEvents`: keys and values separated by `|`, in any order.

Keys may be missing. A value that cannot be parsed becomes None (never False or 0) and adds a flag. The parser never
raises and does not guess; the caller stores the message itself.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

from fleet.domain.reasons import Reason
from fleet.domain.texts import readable
from fleet.domain.times import in_bounds

LONGEST = 16_000
# What senders put around a message: quotation marks of JSON, a byte order mark, a final zero byte.
AROUND = '" \t\r\n\x00\ufeff'
# Of a name or a value inside a flag, and flags of one line.
SHOWN = 60
MOST_FLAGS = 20


class NotificationType(StrEnum):
    """Notification types that Azure documents. Other types are stored with their own name."""

    SCHEDULED = "NodeMaintenanceScheduled"
    STARTING = "NodeMaintenanceStarting"
    START = "NodeMaintenanceStart"
    FAILOVER_COMPLETE = "NodeMaintenanceFailoverComplete"
    ENDED = "NodeMaintenanceEnded"
    SCALE_COMPLETE = "NodeMaintenanceScaleComplete"


TYPES: dict[str, NotificationType] = {kind.value.lower(): kind for kind in NotificationType}
# The spelling that is really sent.
TYPES["nodemaintenancefailover"] = NotificationType.FAILOVER_COMPLETE


@dataclass(frozen=True, slots=True)
class ParsedNotification:
    """Content of one message. `type` is the documented name, else the name in the message, or None.

    `start_time` is in UTC. `flags` describe parts that are unusual or cannot be parsed.
    """

    type: str | None = None
    start_time: datetime | None = None
    is_replica: bool | None = None
    ip_address: str | None = None
    ssl_port: int | None = None
    non_ssl_port: int | None = None
    flags: tuple[Reason, ...] = ()

    @property
    def kind(self) -> NotificationType | None:
        return TYPES.get(self.type.lower()) if self.type else None


def _type(text: str) -> str:
    known = TYPES.get(text.lower())
    return known.value if known else readable(text[:200])


TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,40}))?)?\s?(?:([Zz])|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)


def _time(text: str) -> datetime | None:
    found = TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute = (int(part) for part in found.group(1, 2, 3, 4, 5))
    fraction = int((found[7] or "0")[:6].ljust(6, "0"))
    zone: timezone = UTC
    try:
        if found[9]:
            away = timedelta(hours=int(found[10]), minutes=int(found[11]))
            zone = timezone(away if found[9] == "+" else -away)
        return in_bounds(datetime(year, month, day, hour, minute, int(found[6] or 0), fraction, zone))
    except ValueError:
        return None


def _address(text: str) -> str | None:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return str(ipaddress.ip_address(bare)) if len(bare) <= 100 else None
    except ValueError:
        return None


PORT = re.compile(r"[0-9]{1,5}")


def _port(text: str) -> int | None:
    number = int(text) if PORT.fullmatch(text) else 0
    return number if 0 < number <= 65535 else None


# The attribute of each key, and how its value is read.
FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "notificationtype": ("type", _type),
    "starttimeinutc": ("start_time", _time),
    "starttimeutc": ("start_time", _time),
    "isreplica": ("is_replica", lambda text: {"true": True, "false": False}.get(text.lower())),
    "ipaddress": ("ip_address", _address),
    "sslport": ("ssl_port", _port),
    "nonsslport": ("non_ssl_port", _port),
}


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:SHOWN])


def read_notification(raw: str | bytes) -> ParsedNotification:
    """Parse a message. Never raises."""
    flags: list[Reason] = []
    if isinstance(raw, bytes):
        text = raw.decode("utf-8", errors="replace")
        if text.encode("utf-8") != raw:
            flags.append(Reason("no-text"))
    else:
        text = raw
    if len(text) > LONGEST:
        text = text[:LONGEST]
        flags.append(Reason("line-too-long"))
    stated = _scan(text, flags)
    if not text.strip("| \t\r\n\x00"):
        flags.append(Reason("line-empty"))
    elif "type" not in stated:
        flags.append(Reason("type-missing"))
    elif stated["type"].lower() not in TYPES:
        flags.append(Reason("type-unknown"))
    if len(flags) > MOST_FLAGS:
        flags = [*flags[:MOST_FLAGS], Reason("flags-left-out")]
    return ParsedNotification(**stated, flags=tuple(dict.fromkeys(flags)))


def _scan(text: str, flags: list[Reason]) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    tokens = [token.strip() for token in text.strip(AROUND).split("|")]
    at = 0
    while at < len(tokens) and not tokens[at]:
        at += 1
    while at < len(tokens):
        key = tokens[at]
        if not key:
            if at + 1 < len(tokens):
                flags.append(Reason("value-without-key"))
            at += 1
            continue
        if at + 1 >= len(tokens):
            flags.append(Reason("key-without-value", key=_shown(key)))
            break
        value = tokens[at + 1]
        if value.lower() in FIELDS:
            # No field has the name of a field as its value, so this value is missing.
            flags.append(Reason("key-without-value", key=_shown(key)))
            at += 1
            continue
        at += 2
        if key.lower() not in FIELDS:
            flags.append(Reason("key-unknown", key=_shown(key)))
        elif value:
            name, read = FIELDS[key.lower()]
            found = read(value)
            if found is None:
                flags.append(Reason("value-unreadable", key=key, value=_shown(value)))
            else:
                if name in stated:
                    flags.append(Reason("key-twice", key=key))
                stated[name] = found
    return stated
