"""Attested documents: nonces given, documents checked, nonces spent. Nothing is fetched from here."""

from datetime import datetime
from functools import lru_cache
from pathlib import Path

import structlog
from cryptography import x509
from django.conf import settings
from django.db import connection, transaction
from drydock_agent import wire

from fleet.domain.machines import attestation, challenges
from fleet.domain.machines.attestation import Attested, Trust, trust_of, verify
from fleet.domain.reason import Reason
from fleet.models import Nonce
from fleet.models.cipher import derived_keys

SHIPPED = Path(attestation.__file__).parent / "roots"
PURPOSE = "drydock challenges"
SPEND = "INSERT INTO fleet_nonce (nonce, spent_at) VALUES (%s, %s) ON CONFLICT DO NOTHING"

log = structlog.get_logger(__name__)


def challenge(*, now: datetime) -> wire.Challenge:
    """A nonce for an attested document. Nothing is written, however many ask."""
    nonce = challenges.new_nonce(key=derived_keys(PURPOSE)[0], now=now)
    return wire.Challenge(nonce=nonce, expires_in=challenges.LASTS.total_seconds(), server_time=now)


def attested_by(document: wire.AttestedDocument, *, now: datetime) -> Attested:
    """What Azure says in this document, of whichever subscription; its nonce is spent. Raises Refused
    `attestation-refused`, `intermediate-wanted`.
    """

    def judge(nonce: str) -> Reason | None:
        wrong = challenges.wrong_with(nonce, keys=derived_keys(PURPOSE), now=now)
        return wrong or (None if spend(nonce, now=now) else Reason("attested-nonce-spent"))

    return verify(
        document.signature,
        document.intermediates,
        trust=_trust(settings.ATTESTED_ROOTS or str(SHIPPED)),
        now=now,
        judge_nonce=judge,
        subscriptions=None,
    )


@transaction.atomic
def spend(nonce: str, *, now: datetime) -> bool:
    """Whether nobody has used this nonce, or this mark of a signed call, before: one row for all gateways."""
    Nonce.objects.filter(spent_at__lt=now - 2 * (challenges.LASTS + challenges.AHEAD)).delete()
    with connection.cursor() as cursor:
        cursor.execute(SPEND, [nonce, now])
        return bool(cursor.rowcount == 1)


def _trust(folder: str) -> Trust:
    """The certificates of a folder, read again once somebody has changed it."""
    files = tuple((path, path.stat().st_mtime_ns) for path in sorted(Path(folder).iterdir()) if path.is_file())
    return _read(files)


@lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path, int], ...]) -> Trust:
    found: list[x509.Certificate] = []
    for path, _ in files:
        raw = path.read_bytes()
        try:
            pem = b"-----BEGIN" in raw
            found += x509.load_pem_x509_certificates(raw) if pem else [x509.load_der_x509_certificate(raw)]
        except ValueError as error:
            log.warning("attestation.unreadable_certificate", file=str(path), error=str(error))
    return trust_of(found)
