"""Celery's tasks of accounts. The names by which they are sent are older than this module."""

from datetime import timedelta

from celery import shared_task

from fleet.accounts import provider, service_accounts
from fleet.operations import clock

# The web process stands in for Celery when a user has been due for so long.
REFRESH_LATE = timedelta(minutes=2)


@shared_task(name="fleet.relay.tasks.refresh", ignore_result=True)
def refresh() -> None:
    """Ask the provider of single sign-on whether people still may come in: sent by beat."""
    provider.refresh(now=clock.now())


@shared_task(name="fleet.relay.tasks.tidy_up", ignore_result=True)
def tidy_up() -> None:
    """Tell of tokens that expire soon, and let go of sessions that are over: sent by beat."""
    if clock.may_clock_decide():
        service_accounts.tidy_up(now=clock.now())


def refresh_if_late() -> None:
    """Nobody stays longer than the provider lets them, also while Celery is gone: called by the web process."""
    provider.refresh(now=clock.now(), late=REFRESH_LATE)
