"""Parts of pages that are the same for several readers: made once for all of them who ask at the same time.

Thirty open tabs ask for the same part within a moment of each change. Whoever asks gets what was begun after that, so
nothing that they were told of is missing in it: while one is made, those who come wait for the next, together.
"""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

# Whoever has waited for so long makes their own.
MOST_SECONDS = 10.0


class _Round:
    """One making: `made` once it is done, None where it failed."""

    __slots__ = ("done", "made")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.made: bytes | None = None


class _Turns:
    """Of one part: the round that has not begun yet, and the lock of the one that has. `users` keep it in memory."""

    __slots__ = ("coming", "lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.coming: _Round | None = None
        self.users = 0


class Alike:
    """What one process makes now, by what it depends on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Hashable, _Turns] = {}

    def once(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """What `make` answers to one of all who ask for this key meanwhile. Raises what it raises, for that one."""
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
                        # It begins: who comes from here on has to see what happens from here on.
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


alike = Alike()
