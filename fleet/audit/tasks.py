"""Celery tasks of the audit. Each is sent under an older name than the path of this module."""

from celery import shared_task

from fleet.audit import retention
from fleet.audit.partition_drop import make_ahead
from fleet.audit.seals import seal as seal_timeline
from fleet.operations import clock


@shared_task(name="fleet.relay.tasks.seal", ignore_result=True)
def seal() -> None:
    """Seal the timeline. Scheduled by Celery beat."""
    seal_timeline(now=clock.now(), via="beat")


@shared_task(name="fleet.relay.tasks.partition", ignore_result=True)
def partition() -> None:
    """Create the next partitions of large tables. Scheduled by Celery beat."""
    make_ahead(now=clock.now(), via="beat")


@shared_task(name="fleet.relay.tasks.retain", ignore_result=True)
def retain() -> None:
    """Archive and drop expired partitions. Scheduled by Celery beat."""
    if clock.may_clock_decide():
        retention.retain(now=clock.now())
