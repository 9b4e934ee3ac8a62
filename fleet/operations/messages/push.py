"""The key by which the makers of browsers know this installation: made at first use, its private half encrypted."""

import base64
from dataclasses import dataclass, field
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.db import transaction

from fleet.domain.actor import DRYDOCK
from fleet.domain.timeline import EntryKind
from fleet.models import PushKey
from fleet.models.cipher import Cipher
from fleet.operations.messages.credentials import UnreadableSecretsError
from fleet.operations.timeline.entries import tell

NAME = "vapid"
CIPHER = Cipher("drydock push key")


@dataclass(frozen=True, slots=True)
class PushKeys:
    """`public` as browsers take it, `private` in DER."""

    public: str
    private: bytes = field(repr=False)


def keys(*, now: datetime) -> PushKeys:
    """The one key of the installation. Raises UnreadableSecretsError where no SECRET_KEY that is here reads it."""
    row = PushKey.objects.filter(name=NAME).first() or _made(now)
    private = CIPHER.decrypt(row.private_key, of=NAME)
    if private is None:
        raise UnreadableSecretsError(NAME)
    return PushKeys(row.public_key, private)


@transaction.atomic
def _made(now: datetime) -> PushKey:
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    row, made = PushKey.objects.get_or_create(
        name=NAME,
        defaults={
            "public_key": base64.urlsafe_b64encode(point).decode().rstrip("="),
            "private_key": CIPHER.encrypt(private, of=NAME),
            "created_at": now,
        },
    )
    if made:
        tell(EntryKind.PUSH_KEY_MADE, DRYDOCK, at=now)
    return row
