"""Which machine this is, and what Azure's instance metadata says of it.

It is its `vmId`; else `DRYDOCK_MACHINE_ID`; else a UUID kept in the state folder.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import Clock
from drydock_agent.context import Context
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.metadata_service.client import Imds, NotNow
from drydock_agent.settings.load import Settings
from drydock_agent.spool.store import SpoolError
from drydock_agent.state_folder import StateFolder

# At the start, for the first answer of the metadata service.
ANSWER_TIMEOUT_SECONDS = 60.0
ASK_AGAIN_SECONDS = 5.0
# Between two readings of the instance metadata, and after one that failed.
PERIOD_SECONDS = 3600.0
RETRY_SECONDS = 60.0


@dataclass(slots=True, frozen=True)
class Identity:
    """`source` says where the id is from: `imds`, `config` or `file`. `compute` is the instance metadata, if read."""

    machine_id: str
    source: str
    compute: dict[str, Any] | None = None


class UnknownMachine(Exception):
    """Nothing says who this machine is, yet."""


def vm_id(compute: dict[str, Any]) -> str:
    """The `vmId` in lower case, empty where the metadata has none."""
    text = str(compute.get("vmId") or "").strip()
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return text.lower()


def resource_name(settings: Settings, compute: dict[str, Any] | None) -> str:
    """The name that Azure puts into `Resources`: configured, else as the instance metadata has it."""
    return settings.resource_name or str((compute or {}).get("name") or "")


def resolve(
    settings: Settings,
    imds: Imds,
    state: StateFolder,
    clock: Clock,
    limiter: LogLimiter,
    pause: Callable[[float], object],
    *,
    answer_timeout: float = ANSWER_TIMEOUT_SECONDS,
    for_ever: bool = True,
) -> Identity:
    """Ask the metadata service, for `answer_timeout` seconds; then go by what is remembered or configured.

    A machine that never had an answer does not guess: a made-up id would stay in the fleet as a second machine beside
    the real one. It asks on, or with `for_ever` off raises `UnknownMachine`.
    """
    begun = clock.monotonic()
    answered = False
    while True:
        try:
            compute = imds.instance()
        except NotNow as error:
            limiter.warn("identity", f"Who this machine is cannot be read yet: {error}.")
            answered = answered or error.status is not None
        else:
            found = vm_id(compute)
            return Identity(found, "imds", compute) if found else _without_azure(settings, state, compute)
        if clock.monotonic() - begun >= answer_timeout:
            remembered = state.credential()
            if remembered is not None and remembered.machine_id_source == "imds":
                return Identity(remembered.machine_id, "imds")
            # A service that answers, but not this, is that of a classic machine.
            if settings.machine_id or answered or remembered is not None:
                return _without_azure(settings, state, None)
            if not for_ever:
                raise UnknownMachine("the metadata service gave no answer and DRYDOCK_MACHINE_ID is not set")
        pause(min(ASK_AGAIN_SECONDS, max(answer_timeout, 0.2)))


def _without_azure(settings: Settings, state: StateFolder, compute: dict[str, Any] | None) -> Identity:
    if settings.machine_id:
        return Identity(settings.machine_id, "config", compute)
    return Identity(state.own_machine_id(), "file", compute)


class Instance:
    """One reading an hour; the first is what the identity was read from."""

    name = "instance"

    def __init__(
        self,
        context: Context,
        identity: Identity,
        *,
        imds: Imds,
        reported: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.wake = threading.Event()
        self.compute = identity.compute
        self._context = context
        self._clock = context.clock
        self._limiter = context.limiter
        self._imds = imds
        self._reported = reported
        self._changed = changed
        self._unread = identity.compute
        self._forget = threading.Event()
        self._due = context.clock.monotonic() + (PERIOD_SECONDS if identity.compute is not None else 0.0)

    def step(self) -> float:
        """Seconds until the next reading."""
        if self._unread is None and self._forget.is_set():
            self._unread = self.compute
        if self._unread is None:
            remaining = self._due - self._clock.monotonic()
            if remaining > 0:
                return remaining
            try:
                self._unread = self._imds.instance()
            except NotNow as error:
                self._limiter.warn("instance", f"The instance metadata was not read: {error}.")
                self._due = self._clock.monotonic() + RETRY_SECONDS
                return RETRY_SECONDS
            self._limiter.recovered("instance", "The instance metadata is read again.")
        try:
            self._report(self._unread)
        except SpoolError as error:
            self._limiter.warn("spool", f"The spool cannot be written: {error}.")
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

    def forget(self) -> None:
        """Report what was read last, whatever was reported before: the backend may not know it."""
        self._forget.set()
        self.wake.set()

    def resource_name(self) -> str:
        """The name of this machine in `Resources`, by what was read last; empty as long as nothing says so."""
        return resource_name(self._context.settings, self.compute)

    def _report(self, compute: dict[str, Any]) -> None:
        self.compute = compute
        found = vm_id(compute)
        if found and found != self._context.machine_id:
            self._limiter.warn("identity", f"This machine is {found} now, no longer {self._context.machine_id}.")
            self._changed()
            return
        data = {
            "compute": compute,
            "resource_name": self.resource_name(),
            "availability_set": self._context.settings.availability_set,
        }
        spool = self._context.spool
        digest = sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
        if self._forget.is_set() or digest != spool.get("instance"):
            spool.add(wire.INSTANCE, self._clock.now(), data, remember={"instance": digest})
            self._forget.clear()
            self._reported()
