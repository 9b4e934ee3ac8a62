"""Ed25519 signature check. This is the only module that needs the extra `signed`. Run as a program, it checks one text
and exits (see `signature_verifier`).
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

GOOD, BAD = "good", "bad"


def verifies(public_key: str, signature: str, text: bytes) -> bool:
    """Return whether `signature` over `text` was made with this key; both are base64. Return False if either is
    invalid.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(signature, validate=True), text)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def any_verifies(signed: Iterable[tuple[str, str]], text: bytes) -> bool:
    """Return whether at least one of these (public key, signature) pairs verifies `text`."""
    return any(verifies(public_key, signature, text) for public_key, signature in signed)


def main() -> None:
    """Read `[[[public key, signature], ...], text in base64]` as JSON from standard input, and write the result to
    standard output.
    """
    signed, text = json.load(sys.stdin)
    sys.stdout.write(GOOD if any_verifies(signed, base64.b64decode(text)) else BAD)


if __name__ == "__main__":
    main()
