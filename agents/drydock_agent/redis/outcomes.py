"""Reports how hooks for caches ended. Kept in memory while the disk cannot be written: hooks go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict

from drydock_agent import wire
from drydock_agent.context import Context
from drydock_agent.hooks.progress import FAILED, OUTPUT_CHARACTERS

RETRY_SECONDS = 5.0
# Of a type, which may be anything that stood in a line.
TYPE_CHARACTERS = 200
# Under this name, which no file has, stands the folder.
FOLDER = ""


class Outcomes:
    """Used by the one thread that runs the hooks of one cache."""

    def __init__(self, context: Context, cache: str) -> None:
        self._cache = cache
        self._clock = context.clock
        self._outbox = context.outbox()
        self._key = f"redis hook {cache}"
        # The mark of the hook that an earlier run of the agent began last.
        self.left_over = context.spool.get(self._key) or ""
        # What was last said of each refused file, and of the folder.
        self._refused: dict[str, str] = {}

    @property
    def waits(self) -> bool:
        """True while the disk could not be written."""
        return self._outbox.waits

    def begun(self, run: str) -> None:
        """A hook is about to begin: after a crash the next agent knows by its mark what was left over."""
        self._outbox.keep(self._key, run)

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
        self._outbox.add(wire.REDIS_HOOK, self._clock.now(), asdict(data))
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
        self._outbox.write()
