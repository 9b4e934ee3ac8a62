"""The one place that needs the extra `signed`."""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def verifies(public_key: str, signature: str, text: bytes) -> bool:
    """Whether `signature` over `text` is by this key; both in base64. What cannot be read verifies nothing."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), text)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True
