"""Request coalescing: a part of a page that is equal for several readers is built once for all concurrent requests.

Thirty open tabs request the same part within a moment of each change. A request gets a build that began after it, so
that no change is missing. Requests that arrive during a build share the next one.
"""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

# A request that has waited this long builds its own part.
MOST_SECONDS = 10.0


class _Round:
    """One build: `made` is its result, None if it failed."""

    __slots__ = ("done", "made")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.made: bytes | None = None


class _Turns:
    """Builds of one part: the one that has not begun yet, and the lock of the running one. `users` keep it in
    memory.
    """

    __slots__ = ("coming", "lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.coming: _Round | None = None
        self.users = 0


class SingleFlight:
    """Current builds of this process, by their key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Hashable, _Turns] = {}

    def once(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the result of `make`, called once for all concurrent requests with this key. An exception is raised
        for the request that called it.
        """
        with self._using(key) as turns:
            with self._lock:
                joined = turns.coming
                if joined is None:
                    mine = turns.coming = _Round()
            if joined is not None:
                joined.done.wait(MOST_SECONDS)
                return make() if joined.made is None else joined.made
            try:
                with turns.lock:
                    with self._lock:
                        # The build begins: later requests need a build that sees later changes.
                        turns.coming = None
                    mine.made = make()
                    return mine.made
            finally:
                mine.done.set()

    @contextmanager
    def _using(self, key: Hashable) -> Iterator[_Turns]:
        with self._lock:
            turns = self._turns.setdefault(key, _Turns())
            turns.users += 1
        try:
            yield turns
        finally:
            with self._lock:
                turns.users -= 1
                if not turns.users:
                    del self._turns[key]


single_flight = SingleFlight()
