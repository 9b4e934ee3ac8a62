"""What Azure announces while it is not known yet which machine this is: read and kept, and told once that is known."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from drydock_agent.clock import Clock
from drydock_agent.metadata_service.client import LIMIT, Imds, NotNow

# More than an hour of changes; what comes then takes the place of the newest, so that the first words and the last
# stay.
MOST_DOCUMENTS = 64
MOST_BYTES = 2 * LIMIT


@dataclass(slots=True, frozen=True)
class EarlyDocument:
    """A document as received, when, and with which api-version."""

    body: bytes
    at: datetime
    api_version: str


class Meanwhile:
    """The pauses between two questions for the machine's identity, spent with polling."""

    def __init__(self, imds: Imds, clock: Clock, *, poll_seconds: float, stop: threading.Event) -> None:
        self.documents: list[EarlyDocument] = []
        self._imds = imds
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._stop = stop

    def pause(self, seconds: float) -> None:
        """Poll for so many seconds; ends early when the agent is to stop."""
        ends = self._clock.monotonic() + seconds
        while not self._stop.is_set() and (left := ends - self._clock.monotonic()) > 0:
            self._poll()
            self._stop.wait(max(min(self._poll_seconds, left), 0.05))

    def _poll(self) -> None:
        try:
            body = self._imds.scheduled_events()
        except NotNow:
            # Said already by whoever asks for the identity.
            return
        if self.documents and self.documents[-1].body == body:
            return
        size = sum(len(document.body) for document in self.documents) + len(body)
        if len(self.documents) >= MOST_DOCUMENTS or size > MOST_BYTES:
            self.documents = self.documents[:-1]
        self.documents.append(EarlyDocument(body, self._clock.now(), self._imds.events_version))
