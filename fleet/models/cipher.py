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
    """Return the keys for this purpose, derived from SECRET_KEY and SECRET_KEY_FALLBACKS. Encrypt and sign with the
    first.
    """
    return _derived_of(purpose, settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS))


# Needed by each signed call.
@cache
def _derived_of(purpose: str, key: str, before: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(_derived(one, purpose) for one in (key, *before))


@dataclass(frozen=True, slots=True)
class Cipher:
    """Encryption with AES-256-GCM, with a key derived for `purpose`.

    `of` in the methods identifies the row, so that a value that was copied into another row cannot be decrypted.
    """

    purpose: str

    def encrypt(self, plain: bytes, *, of: str) -> str:
        """Return nonce and ciphertext in base64, encrypted with the key from SECRET_KEY."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return base64.b64encode(nonce + self._with(settings.SECRET_KEY).encrypt(nonce, plain, of.encode())).decode()

    def decrypt(self, text: str, *, of: str) -> bytes | None:
        """Return the decrypted value; None if neither SECRET_KEY nor a fallback key decrypts it."""
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
        return AESGCM(_derived(key, self.purpose))
