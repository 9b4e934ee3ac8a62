"""The strip in the head of every page. A web process counts for all its readers at once, and keeps it for a moment."""

import threading
from datetime import datetime, timedelta
from time import perf_counter

from django.conf import settings

from fleet.projections.desk.strip import Strip, strip

# Counting takes at most this part of a process's time, however large the fleet is.
SHARE = 0.02


class Kept:
    """What was counted last, and until when it serves."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._found: Strip | None = None
        self._until: datetime | None = None

    def at(self, now: datetime) -> Strip:
        """The numbers, at most `HEAD_SECONDS` old; older ones only while somebody counts, or where counting is long."""
        found = self._found
        if found is not None and self._until is not None and found.counted_at <= now < self._until:
            return found
        if not self._counting.acquire(blocking=found is None):
            return found or strip(now=now)
        try:
            began = perf_counter()
            found = strip(now=now)
            took = perf_counter() - began
            seconds = max(settings.HEAD_SECONDS, took / SHARE) if settings.HEAD_SECONDS else 0.0
            self._found, self._until = found, now + timedelta(seconds=seconds)
            return found
        finally:
            self._counting.release()


kept = Kept()
