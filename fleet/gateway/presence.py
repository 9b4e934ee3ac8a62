"""Contact times of machines: collected in memory, and written in one SQL statement every two seconds."""

import threading
from contextlib import suppress

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError

from fleet.domain.db_timeouts import is_timeout
from fleet.gateway.threads import Loop
from fleet.operations import clock
from fleet.operations.intake import presence
from fleet.operations.intake.presence import Contact

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 2.0


class Contacts:
    """Contacts since the last write, the newest of each machine. `note` may be called from any thread."""

    def __init__(self) -> None:
        self.loop = Loop("presence", self.flush, pause=PAUSE_SECONDS)
        self._lock = threading.Lock()
        self._noted: dict[int, Contact] = {}

    def note(self, contact: Contact) -> None:
        with self._lock:
            if (known := self._noted.get(contact.machine_id)) is not None:
                # Calls of one machine overlap: the newest value of each counts.
                contact = Contact(
                    contact.machine_id,
                    max(contact.heard_at, known.heard_at),
                    max((at for at in (contact.poll_at, known.poll_at) if at), default=None),
                    known.clock_offset if contact.clock_offset is None else contact.clock_offset,
                    contact.signatures or known.signatures,
                    contact.metadata or known.metadata,
                )
            self._noted[contact.machine_id] = contact

    def flush(self) -> None:
        """Write the collected contacts. If Postgres is unavailable, they stay in memory for the next call."""
        with self._lock:
            noted, self._noted = self._noted, {}
        if not noted:
            return
        # They may be from before this process first read the database's clock.
        now = clock.now()
        noted = {machine_id: contact.not_after(now) for machine_id, contact in noted.items()}
        try:
            presence.flush(contacts=noted.values())
        except (OperationalError, InterfaceError) as error:
            if is_timeout(error):
                # One of the rows is locked: the others are written, and new machines wait.
                noted = self._pass_by(noted)
            with self._lock:
                self._noted = {**noted, **self._noted}
            if not is_timeout(error):
                raise
        except DatabaseError:
            # One that cannot be written, as of a machine that was deleted, must not silence all others.
            self._flush_one_by_one(list(noted.values()))

    def _pass_by(self, noted: dict[int, Contact]) -> dict[int, Contact]:
        """Write the contacts whose rows are not locked, and return the others."""
        with suppress(OperationalError, InterfaceError):
            free = presence.free_among(noted)
            presence.flush(contacts=[noted[machine_id] for machine_id in free])
            return {machine_id: contact for machine_id, contact in noted.items() if machine_id not in free}
        return noted

    def _flush_one_by_one(self, contacts: list[Contact]) -> None:
        for contact in contacts:
            try:
                presence.flush(contacts=[contact])
            except (OperationalError, InterfaceError):
                raise
            except DatabaseError as error:
                log.warning("presence.unwritable", machine=contact.machine_id, error=str(error).splitlines()[0])
