"""The strip in the head of every page. A web process counts for all its readers at once, and keeps it for a moment."""

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime, timedelta
from time import perf_counter

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from fleet.projections.desk.status_bar import StatusBar, blind_spot_count, status_bar
from fleet.projections.visibility import is_limited

# Looking for blind spots takes at most this part of a process's time, however large the fleet is.
SHARE = 0.05


def apart(work: Callable[[], None]) -> None:
    """In a thread of its own: nobody waits for it. While the database is away the older number stays."""

    def run() -> None:
        with closing(connection), suppress(OperationalError, InterfaceError):
            work()

    threading.Thread(target=run, name="blind-spots", daemon=True).start()


class Kept:
    """What was counted last, and until when it serves. `beside` does what no reader waits for."""

    def __init__(self, beside: Callable[[Callable[[], None]], None] = apart) -> None:
        self._counting = threading.Lock()
        self._found: StatusBar | None = None
        self._until: datetime | None = None
        self._beside = beside
        self._looking = threading.Lock()
        self._spots: int | None = None
        self._spots_until: datetime | None = None

    def at(self, now: datetime) -> StatusBar:
        """The numbers, at most `STATUS_BAR_CACHE_SECONDS` old; older ones only while somebody counts."""
        if is_limited():
            # What is kept counts everything.
            return status_bar(now=now)
        found = self._found
        if found is not None and self._until is not None and found.counted_at <= now < self._until:
            return found
        if not self._counting.acquire(blocking=found is None):
            return found or status_bar(now=now)
        try:
            found = status_bar(now=now, spots=self._spots_at)
            self._found, self._until = found, now + timedelta(seconds=settings.STATUS_BAR_CACHE_SECONDS)
            return found
        finally:
            self._counting.release()

    def _spots_at(self, now: datetime) -> int | None:
        """How many there were when somebody looked last; None before that."""
        if not settings.STATUS_BAR_CACHE_SECONDS:
            return blind_spot_count(now)
        if (self._spots_until is None or now >= self._spots_until) and self._looking.acquire(blocking=False):
            self._beside(lambda: self._look(now))
        return self._spots

    def _look(self, now: datetime) -> None:
        try:
            began = perf_counter()
            self._spots = blind_spot_count(now)
            seconds = max(settings.STATUS_BAR_CACHE_SECONDS, (perf_counter() - began) / SHARE)
            self._spots_until = now + timedelta(seconds=seconds)
        finally:
            self._looking.release()


kept = Kept()
