"""Objects that all parts of one run share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from drydock_agent.clock import Clock, ServerClock
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.settings.load import Settings
from drydock_agent.spool.outbox import Outbox
from drydock_agent.spool.store import Spool


@dataclass(slots=True, frozen=True, kw_only=True)
class Context:
    """Shared objects of one run of the agent. Setting the event `to_upload` wakes the uploader."""

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
        """Create an outbox for one part."""
        return Outbox(spool=self.spool, limiter=self.limiter, written=self.to_upload)

    def hook_record(self, run: str) -> Path:
        """Return the file that records the process of a running hook, on systems that need it."""
        return self.settings.state_dir / f"hook-{run}.json"
