"""Reconciling: whatever is due by the clock, found in Postgres, and what follows from news without a person.

Beat asks for all of it every two seconds, the gateway when Celery is gone; hints ask for a part of it at once.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from fleet.domain.events.sightings import compute_state
from fleet.domain.orders.next_step import Do
from fleet.domain.states import OPEN_EVENTS, ApprovalState, EventStatus
from fleet.models import Approval, LastRun, ScheduledEvent, Sighting
from fleet.models.facts.events import load_witnesses
from fleet.operations.approvals import conditions
from fleet.operations.caches import coverage, maintenances
from fleet.operations.drills import advance as drills
from fleet.operations.events import compute
from fleet.operations.locks import Lock, take_if_free
from fleet.operations.orders import advance as orders
from fleet.operations.policy import apply
from fleet.operations.waves import end as waves

RUN = "relay"


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one run did: whether it ran at all, events computed again, steps carried out, machines woken (row ids)."""

    ran: bool
    computed: int = 0
    steps: int = 0
    woken: tuple[int, ...] = ()


def advance(*, now: datetime, via: str) -> Advanced:
    """Advance whatever is due: compute again what time has changed, wake, time out, ask the next machine, lapse.

    Looks without locks first and locks only what has a step to take. An advisory lock keeps two runs apart; the
    one that does not get it returns at once.
    """
    with transaction.atomic():
        if not take_if_free(Lock.RECONCILE):
            return Advanced(ran=False)
        due = _due(now)
        woken: set[int] = set()
        computed = 0
        if due:
            events = compute.lock(due)
            computed = len(compute.compute_state(events, now=now))
            woken = orders.advance_events(events, now=now, via=via)
        LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
    # In a transaction of its own: approvals do not wait for it.
    with transaction.atomic():
        coverage.vouch()
        maintenances.advance(now=now)
    follow(now=now)
    return Advanced(ran=True, computed=computed, steps=len(due), woken=tuple(sorted(woken)))


def advance_if_quiet(*, now: datetime, quiet_seconds: float, via: str) -> Advanced:
    """Advance when nobody has for this long: the gateway's part when Celery is gone."""
    ran_at = LastRun.objects.filter(name=RUN).values_list("ran_at", flat=True).first()
    if ran_at is not None and (now - ran_at).total_seconds() < quiet_seconds:
        return Advanced(ran=False)
    return advance(now=now, via=via)


def _due(now: datetime) -> list[int]:
    due = {pk for pk, (_, _, step) in orders.steps(None, now).items() if step.do is not Do.NOTHING}
    is_open = Q(status__in=[state.value for state in OPEN_EVENTS])
    # Over, as it seemed while a machine was silent that is back and still lists it.
    back = Sighting.objects.filter(
        gone_at__isnull=True,
        foreign=False,
        machine__presence__last_heard_at__gt=now - timedelta(seconds=settings.LIVE_SECONDS),
    )
    events = list(ScheduledEvent.objects.filter(is_open | Q(pk__in=back.values("event_id"))))
    witnesses = load_witnesses(events, now=now)
    for event in events:
        state = compute_state(witnesses[event.pk], now=now, was_ended=event.status == EventStatus.ENDED.value)
        if state is not None and (state.status.value, state.watched) != (event.status, event.watched):
            due.add(event.pk)
    return sorted(due)


def follow(event_pks: Collection[int] | None = None, *, now: datetime) -> None:
    """Judge these events (row ids) and what stands beside them, or everything that is open."""
    drills.advance(now=now)
    waves.advance(now=now)
    conditions.advance(now=now, event_pks=event_pks)
    apply.decide(now=now, event_pks=event_pks)


def take_on(*, approval_id: int, now: datetime, via: str) -> None:
    """What follows at once from a decision: its condition may be met already, and then its machine is woken."""
    row = Approval.objects.filter(pk=approval_id).values_list("event_id", "state").first()
    if row is not None and row[1] == ApprovalState.WAITING.value:
        conditions.advance(now=now, event_pks=[row[0]])
    orders.advance_approval(approval_id=approval_id, now=now, via=via)
