"""Secrets that are shown once, in the form `<kind>_<prefix>_<256 bits>`, and stored as SHA-256.

These secrets are random and cannot be guessed. So the slow hash that passwords need would only cost CPU time at each
call of an agent.
"""

import hashlib
import secrets


def new_secret(kind: str) -> str:
    """Return a new random secret, safe in URLs. `kind` is its first part, so that people recognise the purpose."""
    return f"{kind}_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


def hash_of(secret: str) -> str:
    """Return the SHA-256 of a secret in lower-case hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def prefix_of(secret: str) -> str:
    """Return the public part of a secret: `<kind>_<prefix>`."""
    return "_".join(secret.split("_", 2)[:2])[:40]
