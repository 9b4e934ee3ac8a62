"""What agents hear of the keys that sign orders. Known per process for half a minute: rotations are rare."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from drydock_agent import wire

from fleet.domain.orders.signatures import SignatureCheck, check_of
from fleet.operations.orders import sign

SECONDS = 30.0


class Keys:
    """The signing keys as this process knows them."""

    def __init__(self) -> None:
        self._known: list[sign.KnownKey] | None = None
        self._until = 0.0

    @property
    def stale(self) -> bool:
        return self._known is None or time.monotonic() >= self._until

    def refresh(self, now: datetime) -> None:
        """Ask Postgres."""
        self._known = sign.all_keys(now=now)
        self._until = time.monotonic() + SECONDS

    def check(self, trusted: Sequence[str] | None) -> SignatureCheck:
        """What an agent that names these keys does about signatures."""
        return check_of(trusted, [key.key_id for key in self._known or ()])

    def news_for(self, trusted: Sequence[str]) -> list[wire.KeyWord]:
        return sign.news_for(self._known or (), trusted)
