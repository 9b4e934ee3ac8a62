"""A stand-in of PagerDuty's Events API v2, held to its documentation: what it refuses, and what an operator sees.

"Send an alert event" and "Overview" in PagerDuty's developer documentation: fields and their limits, 202, 400 and 429,
512 kB, about 120 events a minute and key; a key that is open takes further triggers in silence, and one after its
resolution opens a new alert.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator

from tests.messages.pretend import Said

ROUTING_KEY = "R" + "0123456789abcde" * 2 + "f"
MOST_BODY = 512 * 1024


def text(least: int, most: int | None = None) -> dict[str, Any]:
    return {"type": "string", "minLength": least} | ({} if most is None else {"maxLength": most})


PAYLOAD = {
    "type": "object",
    "required": ["summary", "source", "severity"],
    "properties": {
        "summary": text(1, 1024),
        "source": text(1),
        "severity": {"enum": ["critical", "error", "warning", "info"]},
        "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"},
        "custom_details": {"type": ["object", "string"]},
        **dict.fromkeys(("component", "group", "class"), text(0)),
    },
}
LINK = {"properties": {"href": {"pattern": "^https?://"}, "text": {}}, "additionalProperties": False}
# PagerDuty generates a missing key for a trigger; a sender that wants to resolve the incident must name one.
EVENT = {
    "type": "object",
    "required": ["routing_key", "event_action", "dedup_key"],
    "properties": {
        "routing_key": text(32, 32),
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": text(1, 255),
        "payload": PAYLOAD,
        "links": {"items": LINK},
    },
    "if": {"properties": {"event_action": {"const": "trigger"}}},
    "then": {"required": ["payload"]},
}


@dataclass
class Incident:
    """One alert with its incident. `rang`: how often PagerDuty called a responder for it."""

    key: str
    routing_key: str
    summary: str
    severity: str
    state: str = "triggered"
    rang: int = 1


@dataclass
class PretendPagerDuty:
    """`routing_keys` are those of its services; `allowed`: so many events it takes before it answers 429."""

    routing_keys: set[str] = field(default_factory=lambda: {ROUTING_KEY})
    incidents: list[Incident] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    allowed: int = 1_000_000
    # Answers that come before anything is looked at, such as 500.
    instead: list[Said] = field(default_factory=list)
    url: str = ""

    def asked(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Said:
        if self.instead:
            return self.instead.pop(0)
        if (method, path) != ("POST", "/v2/enqueue"):
            return said(404, {"message": "Not Found"})
        if len(body) > MOST_BODY:
            return said(413, {"message": "Payload Too Large"})
        try:
            event = json.loads(body)
        except ValueError:
            return self.refuse(["JSON is invalid"])
        if headers.get("content-type") != "application/json":
            return self.refuse(["Content-Type is not application/json"])
        wrong = list(faults(event, self.routing_keys))
        if wrong:
            return self.refuse(wrong)
        if self.allowed <= 0:
            return said(429, {"message": "Too Many Requests"})
        self.allowed -= 1
        self.events.append(event)
        self.take(event)
        return said(202, {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]})

    def refuse(self, wrong: list[str]) -> Said:
        self.refused.append(wrong)
        return said(400, {"status": "invalid event", "message": "Event object is invalid", "errors": wrong})

    def take(self, event: dict[str, Any]) -> None:
        key, routing_key = event["dedup_key"], event["routing_key"]
        found = next((i for i in self.open if (i.key, i.routing_key) == (key, routing_key)), None)
        if event["event_action"] != "trigger":
            if found is not None:
                found.state = f"{event['event_action']}d"
        elif found is None:
            payload = event["payload"]
            self.incidents.append(Incident(key, routing_key, payload["summary"], payload["severity"]))
        # Otherwise the trigger is logged; PagerDuty calls no responder.

    @property
    def open(self) -> list[Incident]:
        return [incident for incident in self.incidents if incident.state != "resolved"]

    def states(self) -> list[tuple[str, str]]:
        """Every alert that there ever was, oldest first: the end of its key, and its state."""
        return [(incident.key.split("-", 2)[2], incident.state) for incident in self.incidents]


def said(status: int, body: Mapping[str, Any]) -> Said:
    return Said(status, json.dumps(body).encode())


def faults(event: Any, routing_keys: set[str]) -> Iterator[str]:
    """What is wrong with an event."""
    yield from (error.message for error in Draft202012Validator(EVENT).iter_errors(event))
    if isinstance(event, dict) and event.get("routing_key") not in routing_keys:
        yield "Invalid routing key"
