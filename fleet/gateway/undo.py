"""Approvals of pages go when the seconds to undo them are over: to the moment, whoever still looks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from fleet.gateway.loops import Loop
from fleet.operations import clock
from fleet.operations.approvals import conditions

# How often to ask for what is about to go; it is asked for so far ahead.
PAUSE_SECONDS = 0.5
AHEAD = timedelta(seconds=0.6)


class UndoClock:
    """Lets go what can no longer be undone. Every process does: whoever comes second finds nothing left to do."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self.gone = gone
        self.loop = Loop("undo", self.step, pause=PAUSE_SECONDS, role="relay")

    def step(self) -> None:
        """Wait for each that is about to go, and let it go."""
        if not clock.may_decide():
            return
        for at, event_pks in conditions.about_to_go(until=clock.now() + AHEAD):
            self.loop.sleep(max((at - clock.now()).total_seconds(), 0.0))
            if self.loop.stopped or not clock.may_decide():
                return
            if conditions.advance(now=clock.now(), event_pks=event_pks):
                self.gone()
