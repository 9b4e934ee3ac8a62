"""Last runs of repeated jobs, quarantined rows, and processes with a wrong clock."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import UniqueConstraint
from django.db.models.functions import Now

from fleet.domain.clock import seconds_since
from fleet.models.rows import Row

# A process records its wrong clock every few seconds; after this its clock is right again, or the process has ended.
OVER_AFTER = timedelta(seconds=15)
# A clock that was wrong for a moment is found this long by those who look rarely; then its row is deleted.
RECENT = timedelta(minutes=3)


class WrongClock(Row):
    """A process whose clock is or was wrong.

    `process` is process id and server (`123@web-1`); `kind` is `web`, `worker`, `beat` or `command`. `seen_at` is the
    database's time of the last measurement.
    """

    process = models.TextField(primary_key=True)
    kind = models.TextField()
    # Positive where its clock is ahead.
    skew_seconds = models.FloatField()
    seen_at = models.DateTimeField(db_default=Now())


# Last runs of repeated jobs, and their quarantined rows.


class LastRun(Row):
    """When a job last ran, and which process ran it (`via`: `beat` or `ticker`). One row for each job."""

    # The name of the reconciliation row; other runs have their own rows.
    RECONCILE = "relay"

    name = models.TextField(primary_key=True)
    ran_at = models.DateTimeField()
    via = models.TextField()
    # Of reconciliation: its position in the timeline (a snapshot of Postgres, and the newest id), and the times from
    # the settings.
    snapshot = models.TextField(blank=True, default="", db_default="")
    newest_id = models.BigIntegerField(default=0, db_default=0)
    times = models.TextField(blank=True, default="", db_default="")

    class Meta:
        # The name that it had first: processes of the release before read it while a new one is rolled out.
        db_table = "fleet_sweep"


def seconds_since_run(name: str, *, now: datetime) -> float:
    """Return the seconds since this job last ran.

    The result is infinite if the job never ran, or if the stored time is in the future.
    """
    ran_at = LastRun.objects.filter(name=name).values_list("ran_at", flat=True).first()
    return seconds_since(ran_at, now=now)


class QuarantinedRow(Row):
    """A row that could not be processed, with the error. `what` is a `fleet.domain.scheduling.QuarantineKind`."""

    what = models.TextField()
    row_id = models.BigIntegerField()
    since = models.DateTimeField()
    reason = models.TextField()
    tries = models.IntegerField(default=1)
    next_try_at = models.DateTimeField()

    class Meta:
        constraints = [UniqueConstraint(fields=["what", "row_id"], name="quarantined_row_once")]
