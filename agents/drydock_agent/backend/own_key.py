"""This machine's own key: each call is signed with it, and it is never sent itself."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from urllib.parse import quote

from drydock_agent import wire


@dataclass(slots=True, frozen=True)
class Key:
    """What the backend handed over when this machine enrolled: `key` is 32 bytes in hex."""

    machine_id: str
    generation: int
    key: str


# By what a call proves whose it is: a key, or the credential that 0.1.0 gave.
Secret = Key | str


def authorization(secret: Secret, method: str, target: str, body: bytes | None, now: datetime) -> str:
    """The header `Authorization` of one call. `now` is the backend's time as it was heard last."""
    if isinstance(secret, str):
        return f"Bearer {secret}"
    body_hash = sha256(body).hexdigest() if body else "-"
    at, call_id = str(int(now.timestamp() * 1000)), secrets.token_hex(8)
    text = wire.call_text(method, target, body_hash, at, call_id)
    mark = hmac.new(bytes.fromhex(secret.key), text, "sha256").hexdigest()
    whose = quote(secret.machine_id, safe="")
    return f"{wire.SIGNED} {whose} {secret.generation} {at} {call_id} {body_hash} {mark}"
