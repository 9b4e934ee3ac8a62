"""Reports how hooks for caches ended. Kept in memory while the disk cannot be written: hooks go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any

from . import wire
from .clock import Clock
from .hooks_state import FAILED, OUTPUT_CHARACTERS
from .quiet import Quiet
from .spool import Spool, SpoolError

RETRY_SECONDS = 5.0
# Reports kept in memory while the disk cannot be written.
UNWRITTEN = 1000
# Of a type, which may be anything that stood in a line.
TYPE_CHARACTERS = 200
# Under this name, which no file has, stands the folder.
FOLDER = ""


class Outcomes:
    """Used by the one thread that runs the hooks of one cache."""

    def __init__(self, *, cache: str, spool: Spool, clock: Clock, quiet: Quiet, reported: Callable[[], None]) -> None:
        self._cache = cache
        self._spool = spool
        self._clock = clock
        self._quiet = quiet
        self._reported = reported
        # What was last said of each refused file, and of the folder.
        self._refused: dict[str, str] = {}
        self._unwritten: deque[tuple[datetime, dict[str, Any]]] = deque(maxlen=UNWRITTEN)

    @property
    def waits(self) -> bool:
        """True while the disk could not be written."""
        return bool(self._unwritten)

    def ended(
        self,
        notification_type: str,
        hook: str,
        outcome: str,
        *,
        exit_status: int | None = None,
        seconds: float | None = None,
        output: str = "",
    ) -> None:
        """One hook that was begun has ended."""
        data = wire.RedisHookData(
            cache=self._cache,
            notification_type=notification_type[:TYPE_CHARACTERS],
            hook=hook,
            outcome=outcome,
            exit_status=exit_status,
            seconds=None if seconds is None else round(seconds, 3),
            output=output[-OUTPUT_CHARACTERS:],
        )
        self._unwritten.append((self._clock.now(), asdict(data)))
        self.write()

    def refused(self, notification_type: str, hook: str, sentence: str) -> None:
        """A file, or the `FOLDER`, is not run. Said again only when the sentence is another, or it was good since."""
        if self._refused.get(hook) != sentence:
            self._refused[hook] = sentence
            self.ended(notification_type, hook, FAILED, output=sentence)

    def still_refused(self, names: Collection[str]) -> None:
        """The folder can be read, and of its files only these are refused."""
        self._refused = {name: said for name, said in self._refused.items() if name in names}

    def write(self) -> None:
        """Bring to the disk what waits."""
        wrote = False
        try:
            while self._unwritten:
                at, data = self._unwritten[0]
                self._spool.add(wire.REDIS_HOOK, at, data)
                self._unwritten.popleft()
                wrote = True
        except SpoolError as error:
            self._quiet.warn("spool", f"The spool cannot be written: {error}.")
        if wrote:
            self._reported()
