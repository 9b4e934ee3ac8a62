"""Recovery from the loss of reports that the backend had acknowledged, for example because its database was restored.

The agent then sends its current state again: at most once a minute, and less often if losses repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from drydock_agent.backend.client import Acknowledgement
from drydock_agent.clock import Clock

PAUSE_SECONDS = 60.0
MAX_PAUSE_SECONDS = 3600.0

log = logging.getLogger("drydock_agent")


class LossRecovery:
    """Detects lost reports and calls functions that send the current state again.

    `resend_document` receives the hashes of documents that the backend needs. It returns whether the newest document is
    one of them. `resend_all` receives the number up to which the backend still has this spool's reports.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        resend_document: Callable[[Collection[str]], bool],
        resend_all: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._resend_document = resend_document
        self._resend_all = resend_all
        self._pause = PAUSE_SECONDS
        self._resent_at = self._renumbered_at = float("-inf")
        # Number up to which the backend still has reports; None while nothing is lost.
        self._retained_up_to: int | None = None

    def may_renumber(self) -> bool:
        """Return whether the waiting reports may be renumbered now. This is allowed at most once in `PAUSE_SECONDS`."""
        now = self._clock.monotonic()
        if now < self._renumbered_at + PAUSE_SECONDS:
            return False
        self._renumbered_at = now
        return True

    def check_answer(self, known: int, answer: Acknowledgement) -> None:
        """Check a response for lost reports, and send them again. `known` is the acknowledged number when the call was
        made.

        A response to an older call is compared with the number of that time, so that it does not look like a loss.
        """
        before = answer.acknowledged if answer.before is None else answer.before
        if before < known:
            self._retained_up_to = before if self._retained_up_to is None else min(before, self._retained_up_to)
        now = self._clock.monotonic()
        if now < self._resent_at + self._pause:
            return
        if self._retained_up_to is not None:
            log.warning(
                "The backend no longer has reports from %d on. The current state is sent again.",
                self._retained_up_to + 1,
            )
            retained_up_to, self._retained_up_to = self._retained_up_to, None
            self._record_resend(now)
            self._resend_all(retained_up_to)
        elif answer.wanted and self._resend_document(answer.wanted):
            log.info("The backend does not have the newest document: it is sent again.")
            self._record_resend(now)

    def _record_resend(self, now: float) -> None:
        seldom = now > self._resent_at + 2 * MAX_PAUSE_SECONDS
        self._pause = PAUSE_SECONDS if seldom else min(2 * self._pause, MAX_PAUSE_SECONDS)
        self._resent_at = now
