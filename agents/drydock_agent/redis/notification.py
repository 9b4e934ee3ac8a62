"""Parser for a line of `AzureRedisEvents`: the values that hooks and reconnecting need.

The backend receives the unchanged line and parses all of it. Here, a missing or invalid value becomes an empty string.
"""

from __future__ import annotations

from dataclasses import dataclass

from drydock_agent.clock import from_text

STARTING = "NodeMaintenanceStarting"
START = "NodeMaintenanceStart"
FAILOVER_COMPLETE = "NodeMaintenanceFailoverComplete"
ENDED = "NodeMaintenanceEnded"
# Alternative names that also occur.
_ALIASES = {"nodemaintenancefailover": FAILOVER_COMPLETE}
_KNOWN = ("NodeMaintenanceScheduled", STARTING, START, FAILOVER_COMPLETE, ENDED, "NodeMaintenanceScaleComplete")
_TYPES = {**{word.casefold(): word for word in _KNOWN}, **_ALIASES}
_NAMES = ("notificationtype", "starttimeinutc", "starttimeutc", "isreplica", "ipaddress", "sslport", "nonsslport")
# What senders put around a message: quotation marks of JSON, a byte order mark, a final zero byte.
_AROUND = '|" \t\r\n\x00\ufeff'
_TRUTHS = {"true": "1", "false": "0"}


@dataclass(slots=True, frozen=True)
class Notification:
    """Parsed notification of a cache. `is_replica` is `1`, `0` or empty; ports are digits from 1 to 65535; `start_time`
    is as Azure wrote it.
    """

    kind: str = ""
    start_time: str = ""
    is_replica: str = ""
    ip_address: str = ""
    ssl_port: str = ""
    non_ssl_port: str = ""

    @property
    def shown(self) -> str:
        """The notification type, made safe for one line of a log."""
        return " ".join(self.kind.split())[:100] or "a line without a type"


def read(raw: bytes) -> Notification:
    """Parse a line of any bytes; never raises. Pairs may have any order and spelling. If a name is repeated, the last
    valid value counts.
    """
    words = [word.strip() for word in raw.decode("utf-8", "replace").strip(_AROUND).split("|")]
    found: dict[str, str] = {}
    at = 0
    # A name at the end without a value is ignored.
    while at + 1 < len(words):
        name, value = words[at].casefold(), words[at + 1]
        if not name or value.casefold() in _NAMES:
            # No value is the name of a field, so the value of this name is missing.
            at += 1
            continue
        at += 2
        valid = _valid(name, value)
        if valid:
            found[name] = valid
    return Notification(
        kind=found.get("notificationtype", ""),
        start_time=found.get("starttimeinutc") or found.get("starttimeutc", ""),
        is_replica=found.get("isreplica", ""),
        ip_address=found.get("ipaddress", ""),
        ssl_port=found.get("sslport", ""),
        non_ssl_port=found.get("nonsslport", ""),
    )


def _valid(name: str, value: str) -> str:
    if name == "notificationtype":
        return _TYPES.get(value.casefold(), value)
    if name in ("starttimeinutc", "starttimeutc"):
        return value if from_text(value) else ""
    if name == "isreplica":
        return _TRUTHS.get(value.casefold(), "")
    if name in ("sslport", "nonsslport"):
        good = value.isascii() and value.isdecimal() and len(value) < 6 and 0 < int(value) < 65536
        return value if good else ""
    return value
