"""What nearly every part of one run shares."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random

from drydock_agent.clock import Clock, ServerClock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.settings.load import Settings
from drydock_agent.spool.outbox import Outbox
from drydock_agent.spool.store import Spool


@dataclass(slots=True, frozen=True, kw_only=True)
class Context:
    """Of one run as one machine. `to_upload` is set whenever there is something for the uploader to do."""

    settings: Settings
    machine_id: str
    spool: Spool
    clock: Clock
    server_clock: ServerClock
    limiter: LogLimiter
    # Spreads a fleet's tries; nothing of it is a secret.
    random: Random = field(default_factory=Random)
    to_upload: threading.Event = field(default_factory=threading.Event)

    def outbox(self) -> Outbox:
        """A new one, for one part."""
        return Outbox(spool=self.spool, limiter=self.limiter, written=self.to_upload)
