"""Parser for scheduled events documents. It accepts any bytes and never raises."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from drydock_agent import wire

_LARGEST_INCARNATION = 2**63 - 1


@dataclass(slots=True, frozen=True)
class Document:
    """A scheduled events document as received, and the parts that the agent needs.

    `hash` is the SHA-256 of the bytes. `content_key` is equal for equal content, in any order of keys or events.
    `listed` maps each EventId in lower case to its spelling here; `started` has the ids (lower case) of Started events.
    If the bytes are no valid document, `readable` is False, `content_key` is `hash`, and no events are listed.
    """

    body: bytes
    hash: str
    content_key: str
    readable: bool
    incarnation: int | None = None
    listed: dict[str, str] = field(default_factory=dict)
    started: frozenset[str] = frozenset()


def read(body: bytes) -> Document:
    """Parse a response body as far as possible. Unescaped newlines in strings and a byte order mark are accepted."""
    digest = sha256(body).hexdigest()
    try:
        content = json.loads(body.decode("utf-8-sig"), strict=False)
        if not isinstance(content, dict) or not isinstance(content.get("Events"), list):
            return Document(body=body, hash=digest, content_key=digest, readable=False)
        events = sorted(json.dumps(event, sort_keys=True) for event in content["Events"])
        rest = json.dumps({name: value for name, value in content.items() if name != "Events"}, sort_keys=True)
    except (ValueError, RecursionError):
        return Document(body=body, hash=digest, content_key=digest, readable=False)
    return Document(
        body=body,
        hash=digest,
        content_key=sha256("\n".join([rest, *events]).encode()).hexdigest(),
        readable=True,
        incarnation=_incarnation(content.get("DocumentIncarnation")),
        listed=_listed(content["Events"]),
        started=_started(content["Events"]),
    )


def to_data(document: Document, *, api_version: str) -> dict[str, Any]:
    """Return the fields of `wire.DocumentData` for a report. The body is sent as base64 if it is not UTF-8, or if
    escaping makes the text too long.
    """
    try:
        text, encoding = document.body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(document.body).decode("ascii"), "base64"
    if encoding == "utf-8" and len(json.dumps(text)) > 2 * wire.MAX_DOCUMENT_BYTES:
        text, encoding = base64.b64encode(document.body).decode("ascii"), "base64"
    return {
        "body": text,
        "hash": document.hash,
        "incarnation": document.incarnation,
        "encoding": encoding,
        "api_version": api_version,
    }


def _incarnation(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if isinstance(value, int) and abs(value) <= _LARGEST_INCARNATION:
        return value
    return None


def _listed(events: list[Any]) -> dict[str, str]:
    listed = {}
    for event in events:
        event_id = event.get("EventId") if isinstance(event, dict) else None
        if isinstance(event_id, str) and event_id:
            listed[event_id.lower()] = event_id
    return listed


def _started(events: list[Any]) -> frozenset[str]:
    return frozenset(
        event["EventId"].lower()
        for event in events
        if isinstance(event, dict) and isinstance(event.get("EventId"), str)
        if str(event.get("EventStatus")).strip().lower() == "started"
    )
