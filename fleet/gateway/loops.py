"""Threads that do one thing again and again and survive whatever happens to Postgres and Redis."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import structlog
from django.db import connections

from fleet.domain.patience import act_as

log = structlog.get_logger(__name__)


class Loop(threading.Thread):
    """Runs `step` until stopped: at once after `wake()`, else `pause` seconds after the last run.

    A step that fails is logged once, until it works again, and repeated with growing pauses. The thread has Django
    connections of its own, as patient as its role, and closes them at its end and after each failure.
    """

    def __init__(self, name: str, step: Callable[[], None], *, pause: float, role: str = "gateway") -> None:
        super().__init__(name=name, daemon=True)
        self.role = role
        self.step = step
        self.pause = pause
        self.failing = False
        self._woken = threading.Event()
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def wake(self) -> None:
        """Run the next step now. May be called from any thread."""
        self._woken.set()

    def stop(self) -> None:
        """End after the current step."""
        self._stopped.set()
        self._woken.set()

    def sleep(self, seconds: float) -> None:
        """Sleep, unless stopped."""
        self._stopped.wait(seconds)

    def run(self) -> None:
        act_as(self.role)
        failures = 0
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - this is the loop that must survive
                connections.close_all()
                failures += 1
                if failures == 1:
                    log.warning("loop.failing", loop=self.name, error=f"{type(error).__name__}: {error}")
                self.failing = True
                # Jittered, so that the processes of an installation do not come back in step.
                ceiling = min(0.25 * 2**failures, 5.0)
                self.sleep(random.uniform(ceiling / 2, ceiling))  # noqa: S311 - no secret
                continue
            if failures:
                log.info("loop.recovered", loop=self.name, failures=failures)
                failures = 0
                self.failing = False
            self._woken.wait(self.pause)
        connections.close_all()
