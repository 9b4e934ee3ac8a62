"""Reports on finished hooks for caches. They are kept in memory while the disk cannot be written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict

from drydock_agent import wire
from drydock_agent.context import Context
from drydock_agent.hooks.progress import FAILED, OUTPUT_CHARACTERS

RETRY_SECONDS = 5.0
# Limit of a notification type, which may be any text.
TYPE_CHARACTERS = 200
# Key of the folder itself; no file has this name.
FOLDER = ""


class HookReports:
    """Reports for one cache; used by the thread that runs its hooks."""

    def __init__(self, context: Context, cache: str) -> None:
        self._cache = cache
        self._clock = context.clock
        self._outbox = context.outbox()
        self._key = f"redis hook {cache}"
        # Id of the last hook run that an earlier run of the agent started.
        self.leftover_run = context.spool.get(self._key) or ""
        # Last reported reason for each refused file, and for the folder.
        self._refused: dict[str, str] = {}

    @property
    def waits(self) -> bool:
        """Whether reports wait because the disk could not be written."""
        return self._outbox.waits

    def begun(self, run: str) -> None:
        """Record the run id before a hook starts, so that the next agent can end it after a crash."""
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
        """Report the result of one hook."""
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
        """Report that a file, or the `FOLDER`, is refused; only once per reason."""
        if self._refused.get(hook) != sentence:
            self._refused[hook] = sentence
            self.ended(notification_type, hook, FAILED, output=sentence)

    def retain_refusals(self, names: Collection[str]) -> None:
        """Forget the reported reasons of files that are no longer refused."""
        self._refused = {name: reason for name, reason in self._refused.items() if name in names}

    def write(self) -> None:
        """Write waiting reports to the spool."""
        self._outbox.write()
