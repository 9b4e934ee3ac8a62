"""Processes whose clock differs from the database's."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models.functions import Now

# A process records its wrong clock every few seconds; after this its clock is right again, or the process has ended.
OVER_AFTER = timedelta(seconds=15)
# A clock that was wrong for a moment is found this long by those who look rarely; then its row is deleted.
LATELY = timedelta(minutes=3)


class WrongClock(models.Model):
    """One process whose clock is wrong, or was: `process` is its id and server (`123@web-1`), `kind` is
    `web`, `worker`, `beat` or `command`. `seen_at` is the database's time of its last measurement.
    """

    process = models.TextField(primary_key=True)
    kind = models.TextField()
    # Positive where its clock is ahead.
    skew_seconds = models.FloatField()
    seen_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.process


def clocks_wrong_lately(*, now: datetime) -> list[WrongClock]:
    """The processes whose clock is wrong or was a moment ago, by name. One query."""
    return list(WrongClock.objects.filter(seen_at__gt=now - LATELY).order_by("process"))
