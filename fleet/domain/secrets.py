"""Secrets that are shown once: `<kind>_<prefix>_<256 bits>`, kept as SHA-256.

A slow hash protects guessable secrets; these are not guessable, and a slow hash at every call of every agent would burn
the processor for nothing.
"""

import hashlib
import secrets


def new_secret(kind: str) -> str:
    """Return a new secret, url-safe; `kind` tells readers its purpose."""
    return f"{kind}_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


def hash_of(secret: str) -> str:
    """The SHA-256 of a secret, lower case hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def prefix_of(secret: str) -> str:
    """The public part of a secret, `<kind>_<prefix>`."""
    return "_".join(secret.split("_", 2)[:2])[:40]
