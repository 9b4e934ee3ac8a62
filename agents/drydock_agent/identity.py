"""Who this machine is: its `vmId`; else `DRYDOCK_MACHINE_ID`; else a UUID kept in the state folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .clock import Clock
from .config import Settings
from .imds import Imds, NotNow
from .quiet import Quiet
from .state import StateFolder

PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 5.0


@dataclass(slots=True, frozen=True)
class Identity:
    """`source` says where the id is from: `imds`, `config` or `file`. `compute` is the instance metadata, if read."""

    machine_id: str
    source: str
    compute: dict[str, Any] | None = None


class Unknown(Exception):
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
    quiet: Quiet,
    pause: Callable[[float], object],
    *,
    patience: float = PATIENCE_SECONDS,
    for_ever: bool = True,
) -> Identity:
    """Ask the metadata service, for `patience` seconds; then go by what is remembered or configured.

    A machine that never had an answer does not guess: a made-up id would stay in the fleet as a second machine beside
    the real one. It asks on, or with `for_ever` off raises `Unknown`.
    """
    begun = clock.monotonic()
    answered = False
    while True:
        try:
            compute = imds.instance()
        except NotNow as error:
            quiet.warn("identity", f"Who this machine is cannot be read yet: {error}.")
            answered = answered or error.status is not None
        else:
            found = vm_id(compute)
            return Identity(found, "imds", compute) if found else _without_azure(settings, state, compute)
        if clock.monotonic() - begun >= patience:
            remembered = state.credential()
            if remembered is not None and remembered.machine_id_source == "imds":
                return Identity(remembered.machine_id, "imds")
            # A service that answers, but not this, is that of a classic machine.
            if settings.machine_id or answered or remembered is not None:
                return _without_azure(settings, state, None)
            if not for_ever:
                raise Unknown("the metadata service gave no answer and DRYDOCK_MACHINE_ID is not set")
        pause(min(RETRY_SECONDS, max(patience, 0.2)))


def _without_azure(settings: Settings, state: StateFolder, compute: dict[str, Any] | None) -> Identity:
    if settings.machine_id:
        return Identity(settings.machine_id, "config", compute)
    return Identity(state.own_machine_id(), "file", compute)
