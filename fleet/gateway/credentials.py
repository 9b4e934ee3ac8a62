"""Who is calling: credentials of machines, looked up once and trusted for a while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from enum import Enum
from hashlib import sha256

from fleet.projections.machines import MachineIdentity, identity_of

# More than the machines that one process holds.
SIZE = 200_000
# A wrong credential is asked for again and again; a new one is never asked for before it exists.
WRONG_SIZE = 10_000


class Unknown(Enum):
    """Neither known nor known to be wrong."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


class Credentials:
    """Identities by the hash of their credential, for `seconds`. Revocation rings and forgets at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[MachineIdentity, float]] = OrderedDict()
        self._wrong: OrderedDict[bytes, float] = OrderedDict()
        self._forgotten = 0

    def cached(self, credential: str) -> MachineIdentity | Unknown | None:
        """The identity; None for a credential known to be wrong; UNKNOWN when it has to be looked up."""
        key, now = sha256(credential.encode()).digest(), time.monotonic()
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[1] > now:
                return known[0]
            return None if self._wrong.get(key, 0.0) > now else UNKNOWN

    def look_up(self, credential: str) -> MachineIdentity | None:
        """Ask the database; takes its time, so call it in a thread."""
        key = sha256(credential.encode()).digest()
        forgotten = self._forgotten
        identity = identity_of(credential=credential)
        with self._lock:
            until = time.monotonic() + self.seconds
            if identity is None:
                self._wrong[key] = until
                if len(self._wrong) > WRONG_SIZE:
                    self._wrong.popitem(last=False)
            # A revocation that rang while we asked may be newer than the answer.
            elif forgotten == self._forgotten:
                self._known[key] = (identity, until)
                self._known.move_to_end(key)
                if len(self._known) > SIZE:
                    self._known.popitem(last=False)
        return identity

    def known_among(self, machine_ids: set[int]) -> set[int]:
        """Those of these machines whose credential is trusted here."""
        if not machine_ids:
            return set()
        with self._lock:
            return {one.machine_id for one, _ in self._known.values() if one.machine_id in machine_ids}

    def forget(self, machine_ids: set[int]) -> None:
        """Look up the credentials of these machines again before trusting them."""
        with self._lock:
            self._forgotten += 1
            gone = [key for key, (identity, _) in self._known.items() if identity.machine_id in machine_ids]
            for key in gone:
                del self._known[key]
