"""Cache of machine credentials. Lookups of concurrent calls are combined into one query."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping

from fleet.gateway.http import Problem, busy
from fleet.gateway.threads import Threads
from fleet.operations.machines import keys
from fleet.projections.machines import MachineIdentity, identities_of

# Cached credentials: more than the machines that one process serves.
SIZE = 200_000
# A wrong credential may be sent again and again; a new one is never looked up before it exists.
WRONG_SIZE = 10_000
WRONG_SECONDS = 30.0
# The most keys of one query; while it runs, the next one gathers. A returning fleet waits its turn: no call is refused
# before the machines of a whole process wait.
AT_ONCE = 1_000
# When this many keys arrived together, the next query gathers for this long. Otherwise a fleet that calls for the first
# time would be looked up one by one, and each query costs as much as one for many.
GATHERING = 3
GATHER_SECONDS = 0.02
MOST_WAITING = 25_000


class Credentials:
    """Cache of machine identities by the hash of their credential, valid for `seconds`. A revocation removes its entry
    at once.
    """

    def __init__(self, seconds: float, threads: Threads) -> None:
        self.seconds = seconds
        self.threads = threads
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[MachineIdentity, float]] = OrderedDict()
        # The hashes known here of each machine (row id).
        self._hashes: dict[int, set[str]] = {}
        self._wrong: OrderedDict[str, float] = OrderedDict()
        self._forgotten = 0
        # Of the event loop: the waiting calls, by hash.
        self._asked: dict[str, asyncio.Future[MachineIdentity | None]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def found(self, key: str) -> MachineIdentity | None:
        """Return the machine for the hash of a credential or the name of a key, from the cache or the database; None if
        it is invalid. Raises Problem 503 if too many lookups wait or the database is unavailable.
        """
        now = time.monotonic()
        with self._lock:
            known = self._known.get(key)
            if known is not None and known[1] > now:
                return known[0]
            if self._wrong.get(key, 0.0) > now:
                return None
        waits = self._asked.get(key)
        if waits is None:
            if len(self._asked) >= MOST_WAITING:
                raise busy("The gateway has too much to do right now: try again in a moment.")
            waits = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
        # Several calls may wait for the future: a call that disconnects must not cancel it for the others.
        return await asyncio.shield(waits)

    def look_up(self, hashes: Collection[str]) -> Mapping[str, MachineIdentity]:
        """Query the identities of these hashes in the database. This blocks, so call it in a thread."""
        forgotten = self._forgotten
        # Before the key is trusted: from now on no machine gets another key for this one.
        replaced = keys.mark_used(hashes)
        found = {key: one for key, one in identities_of(hashes=hashes).items() if key not in replaced}
        with self._lock:
            now = time.monotonic()
            for key in hashes:
                if key not in found:
                    self._wrong[key] = now + min(self.seconds, WRONG_SECONDS)
                # A revocation announced during the query may be newer than its result.
                elif forgotten == self._forgotten:
                    self._know(key, found[key], now + self.seconds)
            while len(self._wrong) > WRONG_SIZE:
                self._wrong.popitem(last=False)
        return found

    def outdated(self, current: Mapping[int, str]) -> set[int]:
        """Return the machines (row ids) whose cached credential differs from the `current` one."""
        with self._lock:
            return {machine_id for machine_id, key in current.items() if self._hashes.get(machine_id, set()) - {key}}

    def forget(self, machine_ids: Collection[int]) -> None:
        """Remove the cached credentials of these machines (row ids), so that the next call queries them again."""
        with self._lock:
            self._forgotten += 1
            for machine_id in machine_ids:
                for key in self._hashes.pop(machine_id, ()):
                    del self._known[key]

    def _know(self, key: str, identity: MachineIdentity, until: float) -> None:
        self._known[key] = (identity, until)
        self._known.move_to_end(key)
        self._hashes.setdefault(identity.machine_id, set()).add(key)
        if len(self._known) > SIZE:
            oldest, (gone, _) = self._known.popitem(last=False)
            self._hashes[gone.machine_id].discard(oldest)
            if not self._hashes[gone.machine_id]:
                del self._hashes[gone.machine_id]

    async def _ask(self) -> None:
        """Run lookup queries until no call waits for one."""
        try:
            while self._asked:
                asked = {key: self._asked[key] for key in list(self._asked)[:AT_ONCE]}
                try:
                    found = await self.threads.run(self.look_up, list(asked))
                except Problem as problem:
                    _end(self._taken(asked), problem)
                else:
                    for key, waits in self._taken(asked).items():
                        if not waits.done():
                            waits.set_result(found.get(key))
                if len(asked) >= GATHERING:
                    await asyncio.sleep(GATHER_SECONDS)
        finally:
            self._asking = None
            # Whatever error occurred, no call waits for ever.
            left, self._asked = self._asked, {}
            _end(left, busy("The gateway could not look up who is calling: try again in a moment."))

    def _taken(
        self, asked: dict[str, asyncio.Future[MachineIdentity | None]]
    ) -> dict[str, asyncio.Future[MachineIdentity | None]]:
        for key in asked:
            self._asked.pop(key, None)
        return asked


def _end(waiting: Mapping[str, asyncio.Future[MachineIdentity | None]], problem: Problem) -> None:
    for waits in waiting.values():
        if not waits.done():
            waits.set_exception(problem)
            # The caller may have disconnected: then no code retrieves the exception.
            waits.exception()
