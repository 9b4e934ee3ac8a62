"""Objects shared by the parts of one run."""

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
    """Shared objects of one run as one machine. `to_upload` is set when the uploader has work."""

    settings: Settings
    machine_id: str
    spool: Spool
    clock: Clock
    server_clock: ServerClock
    limiter: LogLimiter
    # Spreads the retries of a fleet; not used for secrets.
    random: Random = field(default_factory=Random)
    to_upload: threading.Event = field(default_factory=threading.Event)

    def outbox(self) -> Outbox:
        """Return a new outbox, for one part."""
        return Outbox(spool=self.spool, limiter=self.limiter, written=self.to_upload)
