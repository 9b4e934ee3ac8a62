"""Celery tasks of accounts. Each is sent under an older name than the path of this module."""

from datetime import timedelta

from celery import shared_task

from fleet.accounts import provider, tokens
from fleet.operations import clock

# The web process refreshes in place of Celery when an account has been due for this long.
REFRESH_LATE = timedelta(minutes=2)


@shared_task(name="fleet.relay.tasks.refresh", ignore_result=True)
def refresh() -> None:
    """Check with the single sign-on provider that its users still have access. Scheduled by Celery beat."""
    provider.refresh(now=clock.now())


@shared_task(name="fleet.relay.tasks.tidy_up", ignore_result=True)
def tidy_up() -> None:
    """Notify users of tokens that expire soon, and delete expired sessions. Scheduled by Celery beat."""
    if clock.may_clock_decide():
        tokens.tidy_up(now=clock.now())


def refresh_if_late() -> None:
    """Run overdue checks with the provider. The web process calls this while Celery is unavailable."""
    provider.refresh(now=clock.now(), late=REFRESH_LATE)
