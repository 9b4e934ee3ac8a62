"""Identity of this machine and its instance metadata.

The machine id is Azure's `vmId`; if there is none, `DRYDOCK_MACHINE_ID`; else, only on a classic VM, a generated UUID
in the state folder.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import Clock
from drydock_agent.context import Context
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.metadata_service.client import Imds, MetadataUnavailable, NoComputeMetadata
from drydock_agent.settings.load import Settings
from drydock_agent.spool.store import SpoolError
from drydock_agent.state_folder import StateError, StateFolder
from drydock_agent.version import agent_version

# Time for the first answer of the metadata service at start.
ANSWER_TIMEOUT_SECONDS = 60.0
QUERY_INTERVAL_SECONDS = 5.0
# How long the service must answer as on a classic VM before a UUID identifies the machine.
CLASSIC_SECONDS = 600.0
# Seconds between two readings of the instance metadata, and after a failed one.
PERIOD_SECONDS = 3600.0
RETRY_SECONDS = 60.0
# Seconds until the next reading after an incomplete response.
PARTIAL_SECONDS = 300.0
_NIL_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(slots=True, frozen=True)
class Identity:
    """Identity of this machine. `source` is the origin of the id: `imds`, `config` or `file`. `compute` is the instance
    metadata, or None if it was not read; `api_version` is the version with which it was read. `complete` means that an
    empty value in it really has no value. `former_id` is the id under which this machine enrolled before Azure gave a
    `vmId`, or empty.
    """

    machine_id: str
    source: str
    compute: dict[str, Any] | None = None
    complete: bool = False
    former_id: str = ""
    api_version: str = ""


class UnknownMachine(Exception):
    """The machine cannot be identified at present."""


def vm_id(compute: dict[str, Any]) -> str:
    """Return the `vmId` of the instance metadata in lower case, or an empty string if there is none."""
    stated = compute.get("vmId")
    text = stated.strip() if isinstance(stated, str) else ""
    try:
        text = str(uuid.UUID(text))
    except ValueError:
        return text.lower()
    return "" if text == _NIL_UUID else text


def resource_name(settings: Settings, compute: dict[str, Any] | None) -> str:
    """Return the name that Azure uses for this machine in `Resources` of events: the configured name, or else the one
    in the instance metadata.
    """
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
    """Identify this machine: query the metadata service for `answer_timeout` seconds, then use the stored or configured
    id.

    A wrongly generated id would appear in the fleet as a second machine. It is therefore generated only if no id is
    stored and the service has responded as on a classic VM for ten minutes. Until then, the query is repeated. With
    `for_ever` False, raises `UnknownMachine` after `answer_timeout` seconds without a response.
    """
    begun = silent_since = clock.monotonic()
    classic_since: float | None = None
    answered = False
    compute: dict[str, Any] | None = None
    while True:
        classic = False
        try:
            compute = imds.instance()
        except MetadataUnavailable as error:
            limiter.warn("identity", f"This machine cannot be identified yet: {error}.")
            classic = isinstance(error, NoComputeMetadata)
            if error.status is not None:
                answered, silent_since = True, clock.monotonic()
        else:
            answered, silent_since = True, clock.monotonic()
            found = vm_id(compute)
            if found:
                return _identity_from_azure(found, compute, imds, state, limiter)
            limiter.warn("identity", "This machine cannot be identified yet: the instance metadata has no vmId.")
        now = clock.monotonic()
        if not classic:
            classic_since = None
        elif classic_since is None:
            classic_since = now
        if now - begun >= answer_timeout:
            kept = stored_identity(settings, state)
            if kept is not None:
                return replace(kept, compute=compute)
            if classic_since is not None and now - classic_since >= CLASSIC_SECONDS:
                return Identity(state.own_machine_id(), "file")
            if not for_ever and now - silent_since >= answer_timeout:
                word = "does not say which machine this is" if answered else "gave no answer"
                raise UnknownMachine(f"the metadata service {word} and DRYDOCK_MACHINE_ID is not set")
        pause(min(QUERY_INTERVAL_SECONDS, max(answer_timeout, 0.2)))


def _identity_from_azure(
    found: str, compute: dict[str, Any], imds: Imds, state: StateFolder, limiter: LogLimiter
) -> Identity:
    try:
        state.keep_vm_id(found)
    except StateError as error:
        limiter.warn("vm-id kept", f"The vmId is not kept: {error}")
    return Identity(found, "imds", compute, imds.instance_complete, former_id(state, found), imds.instance_version)


def former_id(state: StateFolder, machine_id: str) -> str:
    stored = state.credential()
    made_up = stored is not None and stored.machine_id_source in ("config", "file")
    return stored.machine_id if stored is not None and made_up and stored.machine_id != machine_id else ""


def stored_identity(settings: Settings, state: StateFolder) -> Identity | None:
    """Return the identity from the state folder or the settings: Azure's id, else the configured one, else the one used
    to enrol. None without any.
    """
    known = state.vm_id()
    if known:
        return Identity(known, "imds", former_id=former_id(state, known))
    stored = state.credential()
    if stored is not None and stored.machine_id_source == "imds":
        return Identity(stored.machine_id, "imds")
    if settings.machine_id:
        return Identity(settings.machine_id, "config")
    return Identity(stored.machine_id, stored.machine_id_source) if stored is not None else None


class Instance:
    """Reads the instance metadata once an hour and reports it. The first reading already identified the machine."""

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
        self._complete = identity.complete
        # The name in the newest reading; empty before the first.
        self.api_version = identity.api_version
        self._name = resource_name(context.settings, identity.compute)
        self._context = context
        self._clock = context.clock
        self._limiter = context.limiter
        self._imds = imds
        self._on_reported = reported
        self._on_changed = changed
        self._unreported = identity.compute
        self._report_again = threading.Event()
        self._due = context.clock.monotonic() + (PERIOD_SECONDS if identity.compute is not None else 0.0)

    def step(self) -> float:
        """Read and report the instance metadata if this is due. Return the seconds until the next reading."""
        if self._unreported is None and self._report_again.is_set():
            self._unreported = self.compute
        if self._unreported is None:
            remaining = self._due - self._clock.monotonic()
            if remaining > 0:
                return remaining
            try:
                self._unreported = self._imds.instance()
                self._complete, self.api_version = self._imds.instance_complete, self._imds.instance_version
            except MetadataUnavailable as error:
                self._limiter.warn("instance", f"The instance metadata was not read: {error}.")
                self._due = self._clock.monotonic() + RETRY_SECONDS
                return RETRY_SECONDS
            self._limiter.recovered("instance", "The instance metadata is read again.")
        try:
            self._report(self._unreported)
        except SpoolError as error:
            self._limiter.warn("spool", f"The spool cannot be written: {error}.")
            return 1.0
        self._unreported = None
        pause = PERIOD_SECONDS if self._complete else PARTIAL_SECONDS
        self._due = self._clock.monotonic() + pause
        return pause

    def interrupt(self) -> None:
        """Abort the current call."""
        self._imds.interrupt()

    def cut_if_overdue(self) -> None:
        """Abort the current call if it has taken too long."""
        self._imds.cut_if_overdue()

    def resend(self) -> None:
        """Report the last reading again, because the backend may have lost it."""
        self._report_again.set()
        self.wake.set()

    def resource_name(self) -> str:
        """Return the last known name that Azure uses for this machine in `Resources`, or an empty string if it is
        unknown.
        """
        return self._name

    def _report(self, compute: dict[str, Any]) -> None:
        self.compute = compute
        found = vm_id(compute)
        if found and found != self._context.machine_id:
            self._limiter.warn("identity", f"This machine is {found} now, no longer {self._context.machine_id}.")
            self._on_changed()
            return
        self._name = resource_name(self._context.settings, compute) or self._name
        data = {
            "compute": compute,
            "resource_name": self.resource_name(),
            "availability_set": self._context.settings.availability_set,
            "complete": self._complete,
            "node_name": self._context.settings.node_name,
        }
        spool = self._context.spool
        # The backend takes the agent's version from this report, so an upgraded agent sends it again.
        digest = sha256(json.dumps([data, agent_version()], sort_keys=True).encode()).hexdigest()
        if self._report_again.is_set() or digest != spool.get("instance"):
            spool.add(wire.INSTANCE, self._clock.now(), data, remember={"instance": digest})
            self._report_again.clear()
            self._on_reported()
