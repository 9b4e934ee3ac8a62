"""Celery tasks of accounts. The names under which they are sent are older than this module."""

from datetime import timedelta

from celery import shared_task

from fleet.accounts import provider, service_accounts
from fleet.operations import clock

# The web process refreshes in place of Celery when an account has been due for this long.
REFRESH_LATE = timedelta(minutes=2)


@shared_task(name="fleet.relay.tasks.refresh", ignore_result=True)
def refresh() -> None:
    """Check with the single sign-on provider that users still have access. Celery beat sends this task."""
    provider.refresh(now=clock.now())


@shared_task(name="fleet.relay.tasks.tidy_up", ignore_result=True)
def tidy_up() -> None:
    """Notify about tokens that expire soon, and remove expired sessions. Celery beat sends this task."""
    if clock.may_clock_decide():
        service_accounts.tidy_up(now=clock.now())


def refresh_if_late() -> None:
    """Run overdue checks with the provider while Celery is unavailable. The web process calls this."""
    provider.refresh(now=clock.now(), late=REFRESH_LATE)
