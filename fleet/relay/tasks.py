"""Celery's tasks. Each calls one operation; what a lost task would have done, the next sweep does."""

from celery import shared_task
from django.utils import timezone

from fleet.operations import judging, sealing, sweeping


@shared_task(name="fleet.relay.tasks.relay_approval", ignore_result=True)
def relay_approval(approval_id: int) -> None:
    """Take a fresh approval on its way: sent when its transaction has committed."""
    judging.take_on(approval_id=approval_id, now=timezone.now(), via="celery")


@shared_task(name="fleet.relay.tasks.advance", ignore_result=True)
def advance() -> None:
    """Advance whatever is due: sent by beat."""
    sweeping.advance(now=timezone.now(), via="beat")


@shared_task(name="fleet.relay.tasks.seal", ignore_result=True)
def seal() -> None:
    """Seal the timeline: sent by beat."""
    sealing.seal(now=timezone.now(), via="beat")
