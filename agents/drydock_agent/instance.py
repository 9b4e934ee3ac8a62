"""Re-reads the instance metadata and reports it when it changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from . import wire
from .clock import Clock
from .config import Settings
from .identity import Identity, resource_name, vm_id
from .imds import Imds, NotNow
from .quiet import Quiet
from .spool import Spool, SpoolError

PERIOD_SECONDS = 3600.0
RETRY_SECONDS = 60.0


class Instance:
    """One look an hour; the first is what the identity was read from."""

    name = "instance"

    def __init__(
        self,
        *,
        settings: Settings,
        identity: Identity,
        imds: Imds,
        spool: Spool,
        clock: Clock,
        quiet: Quiet,
        reported: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.wake = threading.Event()
        self.compute = identity.compute
        self._settings = settings
        self._identity = identity
        self._imds = imds
        self._spool = spool
        self._clock = clock
        self._quiet = quiet
        self._reported = reported
        self._changed = changed
        self._unread = identity.compute
        self._due = clock.monotonic() + (PERIOD_SECONDS if identity.compute is not None else 0.0)

    def step(self) -> float:
        """Seconds until the next look."""
        if self._unread is None:
            remaining = self._due - self._clock.monotonic()
            if remaining > 0:
                return remaining
            try:
                self._unread = self._imds.instance()
            except NotNow as error:
                self._quiet.warn("instance", f"The instance metadata was not read: {error}.")
                self._due = self._clock.monotonic() + RETRY_SECONDS
                return RETRY_SECONDS
            self._quiet.recovered("instance", "The instance metadata is read again.")
        try:
            self._look(self._unread)
        except SpoolError as error:
            self._quiet.warn("spool", f"The spool cannot be written: {error}.")
            return 1.0
        self._unread = None
        self._due = self._clock.monotonic() + PERIOD_SECONDS
        return PERIOD_SECONDS

    def interrupt(self) -> None:
        """End the call in progress."""
        self._imds.interrupt()

    def cut_if_overdue(self) -> None:
        """End a call that would never end by itself."""
        self._imds.cut_if_overdue()

    def _look(self, compute: dict[str, Any]) -> None:
        self.compute = compute
        found = vm_id(compute)
        if found and found != self._identity.machine_id:
            self._quiet.warn("identity", f"This machine is {found} now, no longer {self._identity.machine_id}.")
            self._changed()
            return
        data = {
            "compute": compute,
            "resource_name": resource_name(self._settings, compute),
            "availability_set": self._settings.availability_set,
        }
        digest = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        if digest != self._spool.get("instance"):
            self._spool.add(wire.INSTANCE, self._clock.now(), data, remember={"instance": digest})
            self._reported()
