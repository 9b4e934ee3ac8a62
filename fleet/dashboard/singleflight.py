"""Request coalescing: a part of a page that is the same for several readers is built once for concurrent requests.

After each change, all open tabs request the same part at almost the same time. Each request gets a result whose build
began after the request arrived, so that it includes the change. Requests that arrive during a build share the next one.
"""

import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field

# A request that has waited this long builds its own part.
MOST_SECONDS = 10.0


@dataclass(slots=True)
class _Turns:
    """Builds of one part: the next build, and the lock that the running build holds. `users` counts the requests that
    use them.
    """

    coming: Future[bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class SingleFlight:
    """The builds of this process, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Hashable, _Turns] = {}

    def once(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the result of `make`, which is called once for all concurrent requests with this key. An exception is
        raised only in the request that called it.
        """
        with self._using(key) as turns:
            with self._lock:
                joined = turns.coming
                if joined is None:
                    mine = turns.coming = Future()
            if joined is not None:
                try:
                    return joined.result(MOST_SECONDS)
                except (CancelledError, TimeoutError):
                    return make()
            try:
                with turns.lock:
                    with self._lock:
                        # The build begins: later requests need a build that sees later changes.
                        turns.coming = None
                    mine.set_result(make())
            finally:
                # Does nothing after a build that succeeded.
                mine.cancel()
            return mine.result()

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
