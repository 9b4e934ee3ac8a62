"""Whether the backend has lost what was acknowledged before, as after its database was restored from a backup.

What is still so is told again then, within measure: a backend that says so again and again, in error or in malice, is
told at most once a minute, and less and less often.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from drydock_agent.backend.client import Acknowledgement
from drydock_agent.clock import Clock

PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 3600.0

log = logging.getLogger("drydock_agent")


class Loss:
    """`tell_document` is given the hashes that the backend wants, and says whether the newest document is among them;
    `tell_everything` the number up to which the backend still has this spool's reports.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        tell_document: Callable[[Collection[str]], bool],
        tell_everything: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._tell_document = tell_document
        self._tell_everything = tell_everything
        self._pause = PAUSE_SECONDS
        self._told_at = self._anew_at = float("-inf")
        # What the backend still had when it lost something, as long as that was not made good.
        self._left: int | None = None

    def may_begin_anew(self) -> bool:
        """Whether a new spool may begin, which numbers everything that waits anew: at most once in such a pause."""
        now = self._clock.monotonic()
        if now < self._anew_at + PAUSE_SECONDS:
            return False
        self._anew_at = now
        return True

    def heard(self, known: int, answer: Acknowledgement) -> None:
        """One answer, and up to where this spool was acknowledged when the very call was made that it answers: so no
        answer to an earlier call is taken for a loss.
        """
        before = answer.acknowledged if answer.before is None else answer.before
        if before < known:
            self._left = before if self._left is None else min(before, self._left)
        now = self._clock.monotonic()
        if now < self._told_at + self._pause:
            return
        if self._left is not None:
            log.warning("The backend no longer has reports from %d on. What is still so is told again.", self._left + 1)
            left, self._left = self._left, None
            self._told(now)
            self._tell_everything(left)
        elif answer.wanted and self._tell_document(answer.wanted):
            log.info("The backend does not have the newest document: it is told again.")
            self._told(now)

    def _told(self, now: float) -> None:
        seldom = now > self._told_at + 2 * LONGEST_PAUSE_SECONDS
        self._pause = PAUSE_SECONDS if seldom else min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._told_at = now
