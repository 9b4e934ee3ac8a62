"""ID tokens, signed with RS256 by keys that rotate. On request, a token is wrong in one way."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hmac import HMAC

LIFE_SECONDS = 3600
# Faults of a token on request; each is to be rejected, the first ones where a new sign-in was required.
NOT_AGAIN = ("not-again", "no-auth-time", "auth-time-ahead", "auth-time-as-text")
LIES = (
    "alg-none",
    "alg-hs256",
    "foreign-key",
    "unknown-key",
    "short-key",
    "altered",
    "wrong-issuer",
    "wrong-audience",
    "second-audience",
    "expired",
    "future",
    "other-nonce",
    "no-nonce",
    "other-tenant",
    "no-oid",
    "critical",
    "no-id-token",
    *NOT_AGAIN,
)


@dataclass(slots=True)
class Key:
    private: RSAPrivateKey
    kid: str

    @property
    def public(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.private.public_key()))
        return {**found, "kid": self.kid, "use": "sig", "alg": "RS256"}


def make_key(bits: int = 2048, kid: str = "") -> Key:
    return Key(generate_private_key(65537, bits), kid or uuid4().hex)


@dataclass(slots=True)
class Keys:
    """Signing keys of the provider. The newest key signs; the previous one is still published."""

    issuer: str
    audience: str
    shown: list[Key] = field(default_factory=lambda: [make_key()])

    def rotate(self) -> None:
        self.shown = [make_key(), self.shown[0]]

    @property
    def public(self) -> dict[str, Any]:
        return {"keys": [key.public for key in self.shown]}

    def id_token(self, claims: dict[str, Any], *, now: int, lie: str = "") -> str:
        """Return an ID token with these claims and the standard ones. `lie` names the way in which it is wrong; empty:
        it is valid.
        """
        whole = {
            "iss": self.issuer,
            "aud": self.audience,
            "iat": now,
            "nbf": now,
            "exp": now + LIFE_SECONDS,
            "ver": "2.0",
            **claims,
        }
        own: dict[str, dict[str, Any]] = {
            "wrong-issuer": {"iss": self.issuer.replace("/v2.0", "/v1.0")},
            "wrong-audience": {"aud": "another-program"},
            "second-audience": {"aud": [self.audience, "another-program"], "azp": "another-program"},
            "expired": {"iat": now - 2 * LIFE_SECONDS, "nbf": now - 2 * LIFE_SECONDS, "exp": now - LIFE_SECONDS},
            "future": {"iat": now + LIFE_SECONDS, "nbf": now + LIFE_SECONDS},
            "other-nonce": {"nonce": "another"},
            "other-tenant": {"tid": str(uuid4())},
            # Like a provider that does not require a new sign-in, or states a wrong time of it.
            "not-again": {"auth_time": now - LIFE_SECONDS},
            "auth-time-ahead": {"auth_time": now + LIFE_SECONDS},
            "auth-time-as-text": {"auth_time": str(now)},
        }
        whole |= own.get(lie, {})
        for name in {"no-nonce": ["nonce"], "no-oid": ["oid"], "no-auth-time": ["auth_time"]}.get(lie, []):
            whole.pop(name, None)
        return self._signed(whole, lie)

    def _signed(self, whole: dict[str, Any], lie: str) -> str:
        key = self.shown[0]
        if lie == "alg-none":
            return f"{_part({'alg': 'none', 'typ': 'JWT', 'kid': key.kid})}.{_part(whole)}."
        if lie == "alg-hs256":
            return self._by_public_key(whole)
        if lie == "foreign-key":
            key = make_key(kid=key.kid)
        if lie == "unknown-key":
            key = make_key()
        if lie == "short-key":
            key = make_key(1024)
            self.shown.append(key)
        headers: dict[str, Any] = {"kid": key.kid}
        if lie == "critical":
            headers |= {"crit": ["exotic"], "exotic": True}
        token = jwt.encode(whole, key.private, algorithm="RS256", headers=headers)
        if lie == "altered":
            head, _, signature = token.split(".")
            return f"{head}.{_part({**whole, 'roles': ['Drydock.Admin']})}.{signature}"
        return token

    def _by_public_key(self, whole: dict[str, Any]) -> str:
        """Return a token that is signed with the public key as if it were a shared secret (HMAC)."""
        secret = (
            self.shown[0]
            .private.public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        said = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': self.shown[0].kid})}.{_part(whole)}"
        mac = HMAC(secret, hashes.SHA256())
        mac.update(said.encode())
        return f"{said}.{_encoded(mac.finalize())}"


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
