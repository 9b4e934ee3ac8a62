"""Reconciliation: finds everything that is due in Postgres and processes it, without user actions.

Celery beat runs it every two seconds, or the gateway if Celery is unavailable; Celery tasks run parts of it
immediately. `ScheduledEvent.next_check_at` is when an event is checked next: now after a change, otherwise when time
alone may change something. So a run without due events costs the same for any number of open events.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import TypeVar

import structlog
from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import Q

from fleet.domain.clock import is_ahead
from fleet.domain.db_timeouts import is_timeout
from fleet.domain.events import compute_state
from fleet.domain.orders.next_step import Do
from fleet.domain.scheduling import AT_ONCE, NEVER, QuarantineKind
from fleet.domain.states import ApprovalState, EventStatus
from fleet.models import Approval, Drill, LastRun, Maintenance, ScheduledEvent
from fleet.models.facts.decisions import load_due
from fleet.models.facts.events import load_witnesses
from fleet.models.facts.machines import presence_limits
from fleet.models.reconcile import seconds_since_run
from fleet.operations import caches, drills, reports, waves
from fleet.operations.approvals import conditions
from fleet.operations.events import compute, scheduling
from fleet.operations.intake import oddities, presence
from fleet.operations.locks import Lock, settle_due, try_take
from fleet.operations.machines import decommission, instance
from fleet.operations.orders import advance as orders
from fleet.operations.policy import apply
from fleet.operations.quarantine import Quarantine, bisect_failures, call_each, delete_expired, error_text
from fleet.operations.sets import coverage as kept

# Of one tick; the rest is left to the next. A changed rule makes everything due that is open, and orders are not to
# wait for that longer than a tick takes.
MOST_PORTIONS = 5
RUN = LastRun.RECONCILE
# Of annexes: each corrects times that a wrong clock has written into its tables.
REPAIRS: list[Callable[..., None]] = []

log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Advanced:
    """Result of one run: whether it ran, and how many events were checked and recomputed.

    `steps`: performed steps of approvals; `woken`: machines (row ids) that were woken.
    """

    ran: bool
    computed: int = 0
    steps: int = 0
    woken: tuple[int, ...] = ()
    looked_at: int = 0


def advance(*, now: datetime, via: str) -> Advanced:
    """Process everything that is due: event states, wake-ups, timeouts, next machines to ask, lapsed approvals.

    The first check takes no locks; only events with a step to perform are locked. An advisory lock prevents two runs at
    the same time: a second run returns at once.
    """
    if not _notice(now, via):
        return Advanced(ran=False)
    looked: list[int] = []
    done: list[tuple[int, int, set[int]]] = []
    call_each(
        scheduling.renew,
        partial(reports.catch_up, now=now),
        partial(_go_through, looked, done, now=now, via=via),
    )
    woken = sorted({machine_id for _, _, machines in done for machine_id in machines})
    computed, steps = sum(count for count, _, _ in done), sum(count for _, count, _ in done)
    return Advanced(ran=True, computed=computed, steps=steps, woken=tuple(woken), looked_at=len(looked))


def _go_through(looked: list[int], done: list[tuple[int, int, set[int]]], *, now: datetime, via: str) -> None:
    """Process the due events. Appends checked event ids to `looked` and results to `done`."""
    began = monotonic()
    with Quarantine(QuarantineKind.EVENT, now=now) as apart:
        # Once more, for those whom the first steps have moved.
        for _ in range(2):
            before = len(looked)
            for portion in _portions(looked, now):
                to_do = {*apart.look(portion, partial(_with_steps, now=now))}
                to_do |= {*apart.look(portion, partial(_changed, now=now))}
                # Orders count from when they are written, not from when a long tick began.
                at = now + timedelta(seconds=int(monotonic() - began))
                done += apart.look(sorted(to_do), partial(_advance, now=at, via=via))
            if len(looked) == before or not _notice(now, via):
                break
        # In transactions of their own: approvals do not wait for them.
        call_each(
            caches.vouch,
            partial(instance.settle_all, now=now),
            partial(caches.advance, now=now),
            partial(_follow_due, looked, apart, now=now),
            partial(kept.renew, now=now),
            partial(decommission.apply_rules, now=now),
        )


def _follow_due(looked: Sequence[int], apart: Quarantine, *, now: datetime) -> None:
    """Process what depends on the checked events (drills, waves, conditions, rules), then set their next check.

    If a part fails, all of it is retried soon, because waves and drills get changes of their events only here.
    """
    portions = [looked[at : at + scheduling.PORTION] for at in range(0, len(looked), scheduling.PORTION)]
    call_each(
        partial(drills.advance, now=now, event_pks=looked),
        partial(_turns, looked, now=now),
        *(partial(conditions.advance, now=now, event_pks=judged) for judged in portions),
        *(partial(apply.decide_due, now=now, event_pks=judged) for judged in portions),
    )
    for judged in portions:
        found = apart.look(judged, lambda pks: list(load_due(pks, now=now).items()))
        later = {pk: until for pk in judged if (until := apart.waits_until(pk)) is not None}
        settle_due(ScheduledEvent, dict(found) | later, now=now)


def _turns(event_pks: Collection[int], *, now: datetime) -> None:
    """Advance the waves that are due or contain these events (row ids), and the approvals that they may send now."""
    conditions.advance(now=now, event_pks=waves.advance(now=now, event_pks=event_pks))


@transaction.atomic
def _notice(now: datetime, via: str) -> bool:
    """Make events due that changed: by timeline entries, by presence of machines, or by changed settings.

    Return False if another run is doing the same now.
    """
    if not try_take(Lock.RECONCILE):
        return False
    run, _ = LastRun.objects.get_or_create(name=RUN, defaults={"ran_at": now, "via": via})
    news = scheduling.read_news(run)
    times = str((settings.ORDER_ANSWER_SECONDS, settings.WAVE_RETURN_SECONDS, presence_limits()))
    had_wrong_clock = is_ahead(run.ran_at, now=now)
    if run.times != times or had_wrong_clock:
        scheduling.make_all_due()
        waves.make_due(Q())
    if had_wrong_clock:
        # What that tick put off is checked again.
        for table in (Drill, Maintenance):
            table.objects.filter(next_check_at__gt=AT_ONCE, next_check_at__lt=NEVER).update(next_check_at=AT_ONCE)
    scheduling.make_news_due(news)
    scheduling.make_turned_due(presence.turned(now=now))
    delete_expired(now=now)
    run.ran_at, run.via, run.times = now, via, times
    run.save()
    return True


def _portions(looked: list[int], now: datetime) -> Iterator[list[int]]:
    """Yield the due events in portions, decided ones first, each once in a run. Appends their ids to `looked`."""
    for decided in (True, False):
        while len(looked) < MOST_PORTIONS * scheduling.PORTION:
            taken = scheduling.take(now=now, decided=decided, besides=looked)
            if not taken:
                break
            looked += taken
            yield taken


def _advance(event_pks: Sequence[int], *, now: datetime, via: str) -> list[tuple[int, int, set[int]]]:
    """Process these events. Return numbers of changed events and of performed steps, and machines (row ids) to wake."""
    # Earlier reports of the event come first, so it waits for the next tick.
    waited_for = oddities.waited_for(event_pks)
    events = compute.lock(pk for pk in event_pks if pk not in waited_for)
    computed = len(compute.compute_state(events, now=now))
    return [(computed, len(event_pks), orders.advance_events(events, now=now, via=via))]


def repair(*, now: datetime) -> None:
    """Replace times in the future, which a process with a wrong clock has written, by the present.

    Otherwise their rows would not be processed until then.
    """
    call_each(
        partial(presence.repair, now=now),
        partial(orders.repair, now=now),
        partial(scheduling.repair, now=now),
        *(partial(more, now=now) for more in REPAIRS),
    )


# Repeated jobs of annexes by the names of their runs; those that may take long run in a thread of their own.
IF_QUIET: dict[str, Callable[..., object]] = {}
SLOW_IF_QUIET: dict[str, Callable[..., object]] = {}


def run_if_quiet(
    name: str, job: Callable[..., T], *, now: datetime, quiet_seconds: float, via: str = "ticker"
) -> T | None:
    """Run a repeated job if no process has done so for `quiet_seconds`, and return its result; else None. Web processes
    call this while Celery is unavailable. `name` is that of the job's last run.
    """
    return job(now=now, via=via) if seconds_since_run(name, now=now) >= quiet_seconds else None


def _with_steps(event_pks: Sequence[int], *, now: datetime) -> list[int]:
    return [pk for pk, underway in orders.steps(event_pks, now).items() if underway.step.do is not Do.NOTHING]


def _changed(event_pks: Sequence[int], *, now: datetime) -> list[int]:
    events = list(ScheduledEvent.objects.filter(pk__in=event_pks))
    witnesses = load_witnesses(events, now=now)
    found = []
    for event in events:
        state = compute_state(witnesses[event.pk], now=now, was_ended=event.status == EventStatus.ENDED.value)
        if state is None:
            continue
        ended_as = state.ended_as.value if state.ended_as else ""
        if (state.status.value, state.watched, ended_as) != (event.status, event.watched, event.ended_as):
            found.append(event.pk)
    return found


def advance_dependents(event_pks: Collection[int] | None = None, *, now: datetime) -> None:
    """Process what depends on these events (row ids), or on all open events: drills, waves, conditions, rules."""
    call_each(
        partial(drills.advance, now=now, event_pks=event_pks or ()),
        partial(_turns, event_pks or (), now=now),
        partial(conditions.advance, now=now, event_pks=event_pks),
        partial(apply.decide, now=now, event_pks=event_pks),
    )


def advance_new_approval(*, approval_id: int, now: datetime, via: str) -> None:
    """Process a new approval immediately: check its condition, then wake its machine.

    While many reports arrive, the event is locked almost all the time. The machine is woken without waiting for that
    lock, because its order is already committed. The next reconciliation does the rest.
    """
    row = Approval.objects.filter(pk=approval_id).values_list("event_id", "state").first()
    if row is not None and row[1] == ApprovalState.WAITING.value:
        conditions.advance(now=now, event_pks=[row[0]])
    orders.wake_asked(approval_id, via=via)
    try:
        orders.advance_approval(approval_id=approval_id, now=now, via=via)
    except OperationalError as error:
        if not is_timeout(error):
            raise


def advance_new_approvals(approval_ids: Sequence[int], *, now: datetime, via: str) -> None:
    """Process several new approvals (row ids). Locked events are left to the next reconciliation.

    If it fails, they are halved, so that one failing approval does not stop the others.
    """
    found = Approval.objects.filter(pk__in=approval_ids, state=ApprovalState.WAITING.value)
    if waiting := list(found.values_list("event_id", flat=True)):
        conditions.advance(now=now, event_pks=waiting)
    orders.wake_asked(*approval_ids, via=via)

    def leave_to_the_tick(approval_id: int, error: Exception) -> None:
        # The next reconciliation quarantines it with the error.
        log.warning("an approval is left to the tick", approval=approval_id, error=error_text(error))

    advance_them = partial(orders.advance_approvals, now=now, via=via)
    bisect_failures(approval_ids, lambda pks: [*advance_them(pks)], leave_to_the_tick)
