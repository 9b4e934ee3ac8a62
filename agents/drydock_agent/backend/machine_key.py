"""Machine key: it signs each call of this machine and is never sent itself."""

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
    """Machine key from the enrolment. `key` is 32 bytes in hex."""

    machine_id: str
    generation: int
    key: str


# Authenticates a call: a machine key, or a credential of 0.1.0.
Secret = Key | str


def authorization(secret: Secret, method: str, target: str, body: bytes | None, now: datetime) -> str:
    """Return the `Authorization` header of one call, signed with `secret`. `target` is the path with query; `now` is
    the backend's time.
    """
    if isinstance(secret, str):
        return f"Bearer {secret}"
    body_hash = sha256(body).hexdigest() if body else "-"
    at, call_id = str(int(now.timestamp() * 1000)), secrets.token_hex(8)
    text = wire.call_text(method, target, body_hash, at, call_id)
    mark = hmac.new(bytes.fromhex(secret.key), text, "sha256").hexdigest()
    whose = quote(secret.machine_id, safe="")
    return f"{wire.SIGNED} {whose} {secret.generation} {at} {call_id} {body_hash} {mark}"
