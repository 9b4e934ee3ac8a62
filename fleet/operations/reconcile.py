"""Reconciling: whatever is due by the clock, found in Postgres, and what follows from news without a person.

Beat asks for all of it every two seconds, the gateway when Celery is gone; hints ask for a part of it at once.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from fleet.domain.aside import What
from fleet.domain.events.sightings import compute_state
from fleet.domain.orders.next_step import Do
from fleet.domain.states import OPEN_EVENTS, ApprovalState, EventStatus
from fleet.models import Approval, LastRun, ScheduledEvent, Sighting
from fleet.models.facts.events import load_witnesses
from fleet.operations.approvals import conditions
from fleet.operations.aside import Apart, forget, in_turn
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
        with Apart(What.EVENT, now=now) as apart:
            due = _due(apart, now)
            done = apart.look(due, partial(_advance, now=now, via=via))
        forget(now=now)
        LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
    # In transactions of their own: approvals do not wait for them.
    in_turn(coverage.vouch, partial(maintenances.advance, now=now), partial(follow, now=now))
    woken = sorted({machine_id for _, machines in done for machine_id in machines})
    return Advanced(ran=True, computed=sum(count for count, _ in done), steps=len(due), woken=tuple(woken))


def _advance(event_pks: Sequence[int], *, now: datetime, via: str) -> list[tuple[int, set[int]]]:
    """How many of these events were computed to something new, and the machines (row ids) that are woken."""
    events = compute.lock(event_pks)
    computed = len(compute.compute_state(events, now=now))
    return [(computed, orders.advance_events(events, now=now, via=via))]


def advance_if_quiet(*, now: datetime, quiet_seconds: float, via: str) -> Advanced:
    """Advance when nobody has for this long: the gateway's part when Celery is gone."""
    ran_at = LastRun.objects.filter(name=RUN).values_list("ran_at", flat=True).first()
    if ran_at is not None and (now - ran_at).total_seconds() < quiet_seconds:
        return Advanced(ran=False)
    return advance(now=now, via=via)


def _due(apart: Apart, now: datetime) -> list[int]:
    due = apart.look(orders.relayed(), partial(_with_steps, now=now))
    is_open = Q(status__in=[state.value for state in OPEN_EVENTS])
    # Over, as it seemed while a machine was silent that is back and still lists it.
    back = Sighting.objects.filter(
        gone_at__isnull=True,
        foreign=False,
        machine__presence__last_heard_at__gt=now - timedelta(seconds=settings.LIVE_SECONDS),
    )
    pks = ScheduledEvent.objects.filter(is_open | Q(pk__in=back.values("event_id"))).values_list("pk", flat=True)
    return sorted({*due, *apart.look(list(pks), partial(_changed, now=now))})


def _with_steps(event_pks: Sequence[int], *, now: datetime) -> list[int]:
    return [pk for pk, (_, _, step) in orders.steps(event_pks, now).items() if step.do is not Do.NOTHING]


def _changed(event_pks: Sequence[int], *, now: datetime) -> list[int]:
    events = list(ScheduledEvent.objects.filter(pk__in=event_pks))
    witnesses = load_witnesses(events, now=now)
    found = []
    for event in events:
        state = compute_state(witnesses[event.pk], now=now, was_ended=event.status == EventStatus.ENDED.value)
        if state is not None and (state.status.value, state.watched) != (event.status, event.watched):
            found.append(event.pk)
    return found


def follow(event_pks: Collection[int] | None = None, *, now: datetime) -> None:
    """Judge these events (row ids) and what stands beside them, or everything that is open."""
    in_turn(
        partial(drills.advance, now=now),
        partial(waves.advance, now=now),
        partial(conditions.advance, now=now, event_pks=event_pks),
        partial(apply.decide, now=now, event_pks=event_pks),
    )


def take_on(*, approval_id: int, now: datetime, via: str) -> None:
    """What follows at once from a decision: its condition may be met already, and then its machine is woken."""
    row = Approval.objects.filter(pk=approval_id).values_list("event_id", "state").first()
    if row is not None and row[1] == ApprovalState.WAITING.value:
        conditions.advance(now=now, event_pks=[row[0]])
    orders.advance_approval(approval_id=approval_id, now=now, via=via)
