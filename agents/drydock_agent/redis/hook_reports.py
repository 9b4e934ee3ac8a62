"""Reports on finished hooks for caches. They stay in memory while the disk cannot be written."""

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
    """Reports on the hooks for one cache. Only the thread that runs these hooks uses it."""

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
        """True if reports are in memory because the disk could not be written."""
        return self._outbox.waits

    def begun(self, run: str) -> None:
        """Store the run id before a hook starts. If the agent crashes, the next run can then end the hook."""
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
        """Report the result of one hook. `notification_type` is the trigger, `seconds` the duration."""
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
        """Report that a hook file, or the hooks folder (`FOLDER`), is refused. The same reason is reported only
        once.
        """
        if self._refused.get(hook) != sentence:
            self._refused[hook] = sentence
            self.ended(notification_type, hook, FAILED, output=sentence)

    def retain_refusals(self, names: Collection[str]) -> None:
        """Keep only the refusals of the files in `names`. If another file is refused later, that is reported again."""
        self._refused = {name: reason for name, reason in self._refused.items() if name in names}

    def write(self) -> None:
        """Write the reports in memory to the spool."""
        self._outbox.write()
