"""Poller for the time before the machine is identified. It stores documents, which are reported once the identity is
known.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from drydock_agent.clock import Clock
from drydock_agent.metadata_service.client import LIMIT, Imds, MetadataUnavailable

# Enough for more than an hour of changes. Above it, a new document replaces the newest; the first ones remain.
MAX_DOCUMENTS = 64
MAX_BYTES = 2 * LIMIT
# Seconds to wait after a response that rejects this agent.
REFUSED_SECONDS = 30.0


@dataclass(slots=True, frozen=True)
class EarlyDocument:
    """A document as received, with the time and the api-version."""

    body: bytes
    at: datetime
    api_version: str


class EarlyPoller:
    """Polls for scheduled events between two attempts to identify the machine."""

    def __init__(self, imds: Imds, clock: Clock, *, poll_seconds: float, stop: threading.Event) -> None:
        self.documents: list[EarlyDocument] = []
        self._imds = imds
        self._clock = clock
        self._poll_seconds = self._pause = poll_seconds
        self._stop = stop

    def pause(self, seconds: float) -> None:
        """Wait `seconds` and poll meanwhile. Return earlier if the agent stops."""
        ends = self._clock.monotonic() + seconds
        while not self._stop.is_set() and (left := ends - self._clock.monotonic()) > 0:
            self._pause = self._poll_seconds
            self._poll()
            self._stop.wait(max(min(self._pause, left), 0.05))

    def _poll(self) -> None:
        try:
            body = self._imds.scheduled_events()
        except MetadataUnavailable as error:
            # `machine.resolve` has logged it already.
            if error.is_lasting:
                self._pause = REFUSED_SECONDS
            return
        if self.documents and self.documents[-1].body == body:
            return
        size = sum(len(document.body) for document in self.documents) + len(body)
        if len(self.documents) >= MAX_DOCUMENTS or size > MAX_BYTES:
            self.documents = self.documents[:-1]
        self.documents.append(EarlyDocument(body, self._clock.now(), self._imds.events_version))
