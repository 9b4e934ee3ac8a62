"""Encryption of columns with the installation's SECRET_KEY, so that dumps and backups do not disclose them.

Values encrypted with an earlier key are readable while that key is in SECRET_KEY_FALLBACKS.
"""

import base64
import secrets
from dataclasses import dataclass
from functools import cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

NONCE_BYTES = 12


@cache
def _derived(key: str, purpose: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode()).derive(key.encode())


def derived_keys(purpose: str) -> tuple[bytes, ...]:
    """Keys for this purpose, made of SECRET_KEY and of those before it: the first is the one to use."""
    return _derived_of(purpose, settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS))


# Needed by each signed call.
@cache
def _derived_of(purpose: str, key: str, before: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(_derived(one, purpose) for one in (key, *before))


@dataclass(frozen=True, slots=True)
class Cipher:
    """AES-256-GCM with keys derived for a `purpose`. `of` names the row: a value copied into another row cannot be
    decrypted."""

    purpose: str

    def encrypt(self, plain: bytes, *, of: str) -> str:
        """Return, in base64, a nonce followed by the ciphertext, which only SECRET_KEY decrypts."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return base64.b64encode(nonce + self._with(settings.SECRET_KEY).encrypt(nonce, plain, of.encode())).decode()

    def decrypt(self, text: str, *, of: str) -> bytes | None:
        """None where no key that is known here reads it."""
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError:
            return None
        for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
            try:
                return self._with(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], of.encode())
            except (InvalidTag, ValueError):
                continue
        return None

    def _with(self, key: str) -> AESGCM:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=self.purpose.encode()).derive(key.encode())
        return AESGCM(derived)
