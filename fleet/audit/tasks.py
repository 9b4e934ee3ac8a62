"""Celery's tasks of the audit. The names by which they are sent are older than this module."""

from celery import shared_task

from fleet.audit import retention
from fleet.audit.partition_drop import make_ahead
from fleet.audit.seals import seal as seal_timeline
from fleet.operations import clock


@shared_task(name="fleet.relay.tasks.seal", ignore_result=True)
def seal() -> None:
    """Seal the timeline: sent by beat."""
    seal_timeline(now=clock.now(), via="beat")


@shared_task(name="fleet.relay.tasks.partition", ignore_result=True)
def partition() -> None:
    """See that large tables have room for what comes: sent by beat."""
    make_ahead(now=clock.now(), via="beat")


@shared_task(name="fleet.relay.tasks.retain", ignore_result=True)
def retain() -> None:
    """Archive what is old enough, and drop it: sent by beat."""
    if clock.may_clock_decide():
        retention.retain(now=clock.now())
