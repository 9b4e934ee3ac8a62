"""A passkey in Python: it signs whatever it is given, as honestly or not as a test wants."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.auth.models import User
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData

ORIGIN = "http://localhost:8000"
PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


class SoftKey:
    """One key for one person. `verifies`: whether it checks who holds it (a PIN, a finger)."""

    def __init__(self, user: User, *, verifies: bool = True, rp_id: str = "localhost") -> None:
        self.user, self.verifies = user, verifies
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.id = secrets.token_bytes(16)
        self.rp_hash = hashlib.sha256(rp_id.encode()).digest()

    def registered(self) -> SoftKey:
        """As if its person had added it on their page."""
        data = {"name": "key", "credential": self.registration("c" * 43)}
        Authenticator.objects.create(user=self.user, type="webauthn", data=data)
        return self

    def registration(self, challenge: str, **client: Any) -> dict[str, Any]:
        """Return the key's answer to a user who adds it."""
        public = ES256.from_cryptography_key(self.private.public_key())
        credential = AttestedCredentialData.create(b"\0" * 16, self.id, public)
        data = AuthenticatorData.create(self.rp_hash, self._flags() | ATTESTED, 0, credential)
        attestation = AttestationObject.create("none", data, {})
        response = {
            "clientDataJSON": websafe_encode(_client("webauthn.create", challenge, client)),
            "attestationObject": websafe_encode(bytes(attestation)),
        }
        return self._answer(response) | {"clientExtensionResults": {"credProps": {"rk": True}}}

    def assertion(self, options: dict[str, Any], **client: Any) -> str:
        """Its answer to these options, as the form sends it."""
        told = _client("webauthn.get", options["publicKey"]["challenge"], client)
        data = bytes(AuthenticatorData.create(self.rp_hash, self._flags(), 1))
        signature = self.private.sign(data + hashlib.sha256(told).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": websafe_encode(told),
            "authenticatorData": websafe_encode(data),
            "signature": websafe_encode(signature),
            "userHandle": websafe_encode(user_pk_to_url_str(self.user).encode()),
        }
        return json.dumps(self._answer(response))

    def _flags(self) -> int:
        return PRESENT | (VERIFIED if self.verifies else 0)

    def _answer(self, response: dict[str, str]) -> dict[str, Any]:
        name = websafe_encode(self.id)
        return {"id": name, "rawId": name, "type": "public-key", "response": response, "clientExtensionResults": {}}


def _client(kind: str, challenge: str, changes: dict[str, Any]) -> bytes:
    return json.dumps(
        {"type": kind, "challenge": challenge, "origin": ORIGIN, "crossOrigin": False, **changes}
    ).encode()
