"""Celery's task of messages: it starts telling in this process, and returns at once, so that no order waits for it."""

from celery import shared_task

from fleet.notify.teller import teller


@shared_task(name="fleet.notify.tasks.tell", ignore_result=True)
def tell() -> None:
    """Tell what is new: sent when an entry was committed that somebody may be told of, and by beat."""
    teller.start(via="celery")
