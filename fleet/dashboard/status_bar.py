"""Cache of the status bar. A web process counts once for all readers, and reuses the result for a short time."""

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime, timedelta
from time import perf_counter

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from fleet.projections import blind_spots
from fleet.projections.desk.status_bar import StatusBar, status_bar
from fleet.projections.visibility import is_limited

# Maximum share of a process's time that is spent on counting blind spots, at any size of the fleet.
SHARE = 0.05


def in_background(work: Callable[[], None]) -> None:
    """Run the work in a separate thread, so that no request waits for it. If the database is unavailable, nothing
    changes.
    """

    def run() -> None:
        with closing(connection), suppress(OperationalError, InterfaceError):
            work()

    threading.Thread(target=run, name="blind-spots", daemon=True).start()


class StatusBarCache:
    """Cache of the last status bar, with its expiry time. Blind spots are counted in the background."""

    def __init__(self, run: Callable[[Callable[[], None]], None] = in_background) -> None:
        self._run = run
        self._counting = threading.Lock()
        self._counts: StatusBar | None = None
        self._until: datetime | None = None
        self._counting_spots = threading.Lock()
        self._spots: int | None = None
        self._spots_until: datetime | None = None

    def at(self, now: datetime) -> StatusBar:
        """Return a status bar that is at most `STATUS_BAR_CACHE_SECONDS` old; an older one only while another thread
        counts.
        """
        if is_limited():
            # The cached counts include hidden sets.
            return status_bar(now=now)
        counts = self._counts
        if counts is not None and self._until is not None and counts.server_time <= now < self._until:
            return counts
        if not self._counting.acquire(blocking=counts is None):
            return counts or status_bar(now=now)
        try:
            counts = status_bar(now=now, spots=self._spots_at)
            self._counts, self._until = counts, now + timedelta(seconds=settings.STATUS_BAR_CACHE_SECONDS)
            return counts
        finally:
            self._counting.release()

    def _spots_at(self, now: datetime) -> int | None:
        """Return the last count of blind spots; None before the first count has ended."""
        if not settings.STATUS_BAR_CACHE_SECONDS:
            return blind_spots.count(now)
        if (self._spots_until is None or now >= self._spots_until) and self._counting_spots.acquire(blocking=False):
            self._run(lambda: self._count_spots(now))
        return self._spots

    def _count_spots(self, now: datetime) -> None:
        try:
            began = perf_counter()
            self._spots = blind_spots.count(now)
            seconds = max(settings.STATUS_BAR_CACHE_SECONDS, (perf_counter() - began) / SHARE)
            self._spots_until = now + timedelta(seconds=seconds)
        finally:
            self._counting_spots.release()


CACHED = StatusBarCache()
