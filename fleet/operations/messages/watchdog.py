"""Whose turn it is to tell the watchdog: one process at a time, once a minute."""

from datetime import datetime, timedelta

from django.db import transaction

from fleet.models import LastRun
from fleet.models.reconcile import seconds_since_run
from fleet.operations.locks import Lock, take_if_free

NAME = "watchdog"
# A little less than a minute, so that whoever comes each minute is not a moment early.
EVERY = timedelta(seconds=55)


@transaction.atomic
def mine(*, now: datetime, via: str) -> bool:
    """Whether it is ours to tell now; nobody else does within the minute."""
    if not take_if_free(Lock.WATCHDOG):
        return False
    if seconds_since_run(NAME, now=now) < EVERY.total_seconds():
        return False
    LastRun.objects.update_or_create(name=NAME, defaults={"ran_at": now, "via": via})
    return True
