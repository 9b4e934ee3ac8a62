"""A stand-in of PagerDuty's Events API v2, held to its documentation: what it refuses, and what an operator sees.

"Send an alert event" and "Overview" in PagerDuty's developer documentation: fields and their limits, 202, 400 and 429,
512 kB, about 120 events a minute and key; a key that is open takes further triggers in silence, and one after its
resolution opens a new alert.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.messages.pretend import Said

KEY = "R" + "0123456789abcdef" * 2
ROUTING_KEY = KEY[:32]
MOST_BODY = 512 * 1024
TEXTS = ("component", "group", "class")


@dataclass
class Incident:
    """One alert with its incident. `rang`: how often PagerDuty called a responder for it."""

    key: str
    routing_key: str
    summary: str
    severity: str
    payloads: list[dict[str, Any]]
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
        match event["event_action"]:
            case "trigger" if found is None:
                payload = event["payload"]
                opened = Incident(key, routing_key, payload["summary"], payload["severity"], [payload])
                self.incidents.append(opened)
            case "trigger" if found is not None:
                # The trigger is logged; PagerDuty calls no responder.
                found.payloads.append(event["payload"])
            case "acknowledge" if found is not None:
                found.state = "acknowledged"
            case "resolve" if found is not None:
                found.state = "resolved"

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
    if not isinstance(event, dict):
        yield "event is not an object"
        return
    routing_key = event.get("routing_key")
    if not isinstance(routing_key, str) or len(routing_key) != 32:
        yield "Length of 'routing_key' is incorrect (should be 32 characters)"
    elif routing_key not in routing_keys:
        yield "Invalid routing key"
    action, key = event.get("event_action"), event.get("dedup_key")
    if action not in ("trigger", "acknowledge", "resolve"):
        yield "'event_action' is missing or invalid"
    # PagerDuty generates a missing key for a trigger; a sender that wants to resolve the incident must name one.
    if not isinstance(key, str) or not 0 < len(key) <= 255:
        yield "'dedup_key' is missing or longer than 255 characters"
    if action == "trigger":
        yield from payload_faults(event.get("payload"))
        for link in event.get("links", ()):
            if not (set(link) <= {"href", "text"} and str(link.get("href", "")).startswith(("http://", "https://"))):
                yield "'links' is invalid"


def payload_faults(payload: Any) -> Iterator[str]:
    if not isinstance(payload, dict):
        yield "'payload' is missing or blank"
        return
    summary = payload.get("summary")
    if not isinstance(summary, str) or not 0 < len(summary) <= 1024:
        yield "'payload.summary' is missing or too long"
    if not isinstance(payload.get("source"), str) or not payload["source"]:
        yield "'payload.source' is missing or blank"
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        yield "'payload.severity' is missing or blank"
    if any(not isinstance(payload.get(name, ""), str) for name in TEXTS):
        yield "a field of 'payload' is no text"
    if not isinstance(payload.get("custom_details", {}), dict | str):
        yield "'payload.custom_details' is invalid"
    if "timestamp" in payload:
        try:
            datetime.fromisoformat(payload["timestamp"])
        except ValueError:
            yield "'payload.timestamp' is invalid"
