"""The state folder: the spool, the credential (file mode 0600), and the generated machine id if Azure gives none."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import secrets
import uuid
from dataclasses import dataclass
from pathlib import Path

from drydock_agent.clock import Clock
from drydock_agent.platforms import system
from drydock_agent.spool.store import Spool, SpoolDamaged

log = logging.getLogger("drydock_agent")


class StateError(Exception):
    """The state folder cannot be used. The message is a sentence for the user."""


@dataclass(slots=True, frozen=True)
class Credential:
    """The machine's credential or key from the enrolment, with the machine id at that time."""

    machine_id: str
    machine_id_source: str
    # Credential from a backend of 0.1.0; empty if there is a key.
    secret: str = ""
    # Machine key: 32 bytes in hex. `generation` is the number of the enrolment that created it.
    key: str = ""
    generation: str = ""


class StateFolder:
    """The only folder to which the agent writes. Every method raises `StateError` if the folder cannot be used."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self._clock = clock

    def prepare(self) -> None:
        """Create the folder if it does not exist, and check that it can be written."""
        probe = self.root / f"probe-{os.getpid()}"
        try:
            system.make_private_folder(self.root)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StateError(f"The state folder {self.root} cannot be written: {error.strerror}.") from error

    def credential(self) -> Credential | None:
        """Return the stored credential, or None if there is no valid one."""
        try:
            content = json.loads((self.root / "credential.json").read_text("utf-8"))
            known = {name: str(content[name]) for name in ("machine_id", "machine_id_source", "secret")}
            return Credential(**known, key=str(content.get("key", "")), generation=str(content.get("generation", "")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("The stored credential cannot be read (%s); the agent enrols again.", error)
            return None

    def keep_credential(self, credential: Credential) -> None:
        """Store the credential in a file that only the agent's user can read."""
        self._replace("credential.json", json.dumps({name: getattr(credential, name) for name in Credential.__slots__}))

    def signing_keys(self) -> dict[str, str]:
        """Return the trusted public signing keys in base64, by key id. Empty if there are no valid ones."""
        try:
            content = json.loads((self.root / "signing-keys.json").read_text("utf-8"))
            return {str(key): str(value) for key, value in content.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            log.warning("The stored signing keys cannot be read (%s).", error)
            return {}

    def keep_signing_keys(self, keys: dict[str, str]) -> None:
        """Store the trusted public signing keys (base64 by key id)."""
        self._replace("signing-keys.json", json.dumps(keys))

    def own_machine_id(self) -> str:
        """Return the generated machine id of this folder, a UUID. It is created at the first call."""
        path = self.root / "machine-id"
        try:
            return str(uuid.UUID(path.read_text("ascii").strip()))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise StateError(f"{path} holds no UUID ({error}).") from error
        made = str(uuid.uuid4())
        self._replace("machine-id", made + "\n")
        return made

    def vm_id(self) -> str:
        """Return the last `vmId` from Azure for this machine, or an empty string."""
        try:
            return (self.root / "vm-id").read_text("utf-8").strip()[:200]
        except (OSError, ValueError):
            return ""

    def keep_vm_id(self, vm_id: str) -> None:
        """Store the `vmId` from Azure."""
        if vm_id != self.vm_id():
            self._replace("vm-id", vm_id + "\n")

    def admission_secret(self, *, keep: bool = True) -> str:
        """Return the secret with which this machine requests admission. It is created at the first call; with `keep`
        False, the new one is not stored. Return an empty string if it cannot be stored.
        """
        path = self.root / "ask"
        try:
            return path.read_text("ascii").strip()
        except (OSError, ValueError):
            made = secrets.token_urlsafe(32)
        if not keep:
            return made
        with contextlib.suppress(StateError):
            self._replace("ask", made + "\n")
            return made
        return ""

    def endpoint(self) -> str:
        """Return the stored address of the metadata service that DHCP stated, or an empty string if there is no valid
        one.
        """
        try:
            return str(ipaddress.IPv4Address((self.root / "endpoint").read_text("ascii").strip()))
        except (OSError, ValueError):
            return ""

    def keep_endpoint(self, address: str) -> None:
        """Store the address of the metadata service that DHCP stated."""
        self._replace("endpoint", address + "\n")

    def open_spool(self, machine_id: str, *, former_id: str = "") -> Spool:
        """Open the spool of this machine. `former_id` is the machine's id before Azure gave a `vmId`. A damaged spool,
        or one of another machine, is renamed but never deleted, and a new one is created.
        """
        path = self.root / "spool.sqlite3"
        try:
            spool = Spool(path, clock=self._clock)
        except SpoolDamaged as error:
            log.warning("The spool is damaged (%s).", error)
            self._move_damaged(path, "damaged")
            spool = Spool(path, clock=self._clock)
        owner = spool.get("machine_id")
        if owner is not None and owner not in (machine_id, former_id):
            log.warning("The spool belongs to machine %s, this is machine %s: a new spool begins.", owner, machine_id)
            spool.close()
            self._move_damaged(path, owner)
            spool = Spool(path, clock=self._clock)
        spool.set("machine_id", machine_id)
        return spool

    def _move_damaged(self, path: Path, word: str) -> None:
        safe = "".join(character if character.isalnum() or character == "-" else "_" for character in word)[:64]
        stem = f"spool-{safe}-{self._clock.now():%Y%m%dT%H%M%S%f}.sqlite3"
        for suffix in ("", "-wal", "-shm"):
            old = self.root / (path.name + suffix)
            try:
                if old.exists():
                    old.replace(self.root / (stem + suffix))
            except OSError as error:
                raise StateError(f"{old} cannot be put aside: {error.strerror}.") from error
        log.warning("The old spool was kept as %s.", self.root / stem)

    def _replace(self, name: str, text: str) -> None:
        path, fresh = self.root / name, self.root / (name + ".new")
        try:
            with contextlib.suppress(FileNotFoundError):
                fresh.unlink()
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            raise StateError(f"{path} cannot be written: {error.strerror}.") from error
