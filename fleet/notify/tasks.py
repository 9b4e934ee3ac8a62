"""Celery's task of messages: it starts telling in this process, and returns at once, so that no order waits for it."""

from celery import shared_task

from fleet.notify.teller import teller
from fleet.notify.watchdog import ping


@shared_task(name="fleet.notify.tasks.tell", ignore_result=True)
def tell() -> None:
    """Tell what is new: sent when an entry was committed that somebody may be told of, and by beat."""
    teller.start(via="celery")


@shared_task(name="fleet.notify.tasks.watch", ignore_result=True)
def watch() -> None:
    """Tell the watchdog outside that all works: sent by beat."""
    ping(via="celery")
