"""Celery tasks. Each task calls one operation; the next reconciliation does the work of a lost task.

A worker whose clock is wrong performs no task that decides or deletes; another worker or a web process does it.
"""

from celery import shared_task

from fleet.operations import blind_spots, clock, reconcile
from fleet.operations.sets import coverage
from fleet.relay import counts


@shared_task(name="fleet.relay.tasks.relay_approval", ignore_result=True)
def relay_approval(approval_id: int) -> None:
    """Send a new approval (row id). The task is queued after the commit of the approval."""
    if clock.may_clock_decide():
        reconcile.advance_new_approval(approval_id=approval_id, now=clock.now(), via="celery")


@shared_task(name="fleet.relay.tasks.relay_approvals", ignore_result=True)
def relay_approvals(approvals: list[tuple[int, dict[str, str]]]) -> None:
    """Send several new approvals (row ids) that were queued together, each with its trace."""
    if not clock.may_clock_decide():
        return
    with counts.each([words for _, words in approvals], task="fleet.relay.tasks.relay_approvals"):
        reconcile.advance_new_approvals([approval_id for approval_id, _ in approvals], now=clock.now(), via="celery")


@shared_task(name="fleet.relay.tasks.follow", ignore_result=True)
def follow(event_pks: list[int]) -> None:
    """Process what depends on these events (row ids). The task is queued after the commit of reports about them."""
    if clock.may_clock_decide():
        reconcile.advance_dependents(event_pks, now=clock.now())


@shared_task(name="fleet.relay.tasks.advance", ignore_result=True)
def advance() -> None:
    """Process everything that is due. Celery beat sends this task."""
    if clock.may_clock_decide():
        reconcile.advance(now=clock.now(), via="beat")


@shared_task(name="fleet.relay.tasks.compare", ignore_result=True)
def compare() -> None:
    """Check whether blind spots began or ended. Celery beat sends this task."""
    now = clock.now()
    reconcile.repair(now=now)
    blind_spots.compare(now=now, via="beat")


@shared_task(name="fleet.relay.tasks.renew", ignore_result=True)
def renew() -> None:
    """Compute the stored counts of all sets that changed, and check some others. Celery beat sends this task."""
    coverage.renew_all(now=clock.now())
