"""Nonces for attested documents: each says itself when it was given and that it is ours.

So nothing is kept of those that were given, whoever asks for a million, and each gateway knows those of all others.
Kept is what was spent, for as long as it would otherwise count.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from fleet.domain.reason import Reason

LASTS = timedelta(seconds=60)
# Clocks of two gateways may differ by that.
AHEAD = timedelta(seconds=10)
# 32 letters and digits, which is as many as Azure takes: milliseconds since 1970, chance, and who gave it.
_TIME, _CHANCE, _MARK = 6, 4, 10


def _mark(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")[:_MARK]


def new_nonce(*, key: bytes, now: datetime) -> str:
    """A nonce of 32 letters and digits."""
    said = _milliseconds(now).to_bytes(_TIME, "big") + secrets.token_bytes(_CHANCE)
    return base64.b32encode(said + _mark(key, said)).decode()


def wrong_with(nonce: str, *, keys: Iterable[bytes], now: datetime) -> Reason | None:
    """Why this nonce does not count at this time; None where it is one of ours and young enough."""
    try:
        raw = base64.b32decode(nonce.encode("ascii"))
    except (binascii.Error, ValueError):
        return Reason("attested-nonce")
    said, mark = raw[:-_MARK], raw[-_MARK:]
    if len(said) != _TIME + _CHANCE or not any(hmac.compare_digest(_mark(key, said), mark) for key in keys):
        return Reason("attested-nonce")
    given = datetime.fromtimestamp(int.from_bytes(said[:_TIME], "big") / 1000, UTC)
    if given > now + AHEAD or now - given >= LASTS:
        return Reason("attested-nonce-over", seconds=int(LASTS.total_seconds()))
    return None


def _milliseconds(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
