"""What agents hear of the keys that sign orders. Known per process for half a minute: rotations are rare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime

from drydock_agent import wire

from fleet.domain.orders.signatures import SignatureCheck, check_of
from fleet.gateway.threads import Threads
from fleet.operations.orders import sign

SECONDS = 30.0
# A fleet trusts one set of keys, or two while they are rotated; whoever names others is judged each time.
MOST_JUDGED = 100


class Keys:
    """The signing keys as this process knows them."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self._known: list[sign.KnownKey] | None = None
        self._until = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._judged: dict[str, tuple[SignatureCheck, bool]] = {}

    async def look(self, now: datetime) -> None:
        """Ask Postgres where it is long ago: once, whoever waits for it. Raises Problem 503 when it is away."""
        if self._known is not None and time.monotonic() < self._until:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self.threads.run(self._refresh, now))
        await asyncio.shield(self._refreshing)

    def _refresh(self, now: datetime) -> None:
        self._known = sign.all_keys(now=now)
        self._judged = {}
        self._until = time.monotonic() + SECONDS

    def check(self, trusted: Sequence[str] | None) -> SignatureCheck:
        """What an agent that names these keys does about signatures."""
        return check_of(trusted, [key.key_id for key in self._known or ()])

    def news_for(self, trusted: Sequence[str]) -> list[wire.KeyWord]:
        return sign.news_for(self._known or (), trusted)

    def judged(self, trusted: str | None) -> tuple[SignatureCheck, bool]:
        """The same of ids parted by commas, None where it checks nothing; and whether there is news for that agent."""
        if trusted is None:
            return self.check(None), False
        judged = self._judged
        found = judged.get(trusted)
        if found is None:
            ids = [part for part in trusted.split(",") if part]
            found = self.check(ids), bool(self.news_for(ids))
            if len(judged) < MOST_JUDGED:
                judged[trusted] = found
        return found
