"""Sweeping: whatever is due by the clock, found in Postgres. Beat asks for it, and the gateway when Celery is gone."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q

from fleet.domain.relaying import Do
from fleet.domain.sightings import fold
from fleet.domain.states import RELAYED_APPROVALS, EventStatus
from fleet.models import Approval, ScheduledEvent, Sighting, Sweep
from fleet.models.facts import load_witnesses
from fleet.operations import folding, judging, redis, relaying

# Any number will do, as long as nothing else in this database uses it.
SWEEP_LOCK = 7_001_169
SWEEP = "relay"


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one sweep did: whether it ran at all, events folded anew, steps carried out, machines rung (row ids)."""

    ran: bool
    folded: int = 0
    steps: int = 0
    rung: tuple[int, ...] = ()


def advance(*, now: datetime, via: str) -> Advanced:
    """Advance whatever is due: fold what time has changed, ring, time out, ask the next machine, lapse.

    Looks without locks first and locks only what has a step to take. An advisory lock keeps two sweeps apart; the
    one that does not get it returns at once.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [SWEEP_LOCK])
            row = cursor.fetchone()
        if not row or not row[0]:
            return Advanced(ran=False)
        due = _due(now)
        rung: set[int] = set()
        folded = 0
        if due:
            events = folding.lock(due)
            folded = len(folding.refold(events, now=now))
            rung = relaying.advance_events(events, now=now, via=via)
        Sweep.objects.update_or_create(name=SWEEP, defaults={"ran_at": now, "via": via})
    # In a transaction of its own: approvals do not wait for it.
    with transaction.atomic():
        redis.sweep(now=now)
    judging.follow(now=now)
    return Advanced(ran=True, folded=folded, steps=len(due), rung=tuple(sorted(rung)))


def advance_if_quiet(*, now: datetime, quiet_seconds: float, via: str) -> Advanced:
    """Advance when nobody has for this long: the gateway's part when Celery is gone."""
    ran_at = Sweep.objects.filter(name=SWEEP).values_list("ran_at", flat=True).first()
    if ran_at is not None and (now - ran_at).total_seconds() < quiet_seconds:
        return Advanced(ran=False)
    return advance(now=now, via=via)


def _due(now: datetime) -> list[int]:
    states = [state.value for state in RELAYED_APPROVALS]
    approved = list(Approval.objects.filter(state__in=states).values_list("event_id", flat=True))
    due = {pk for pk, (_, _, step) in relaying.steps(approved, now).items() if step.do is not Do.NOTHING}
    is_open = ~Q(status=EventStatus.ENDED.value)
    # Over, as it seemed while a machine was silent that is back and still lists it.
    back = Sighting.objects.filter(
        gone_at__isnull=True,
        foreign=False,
        machine__presence__last_heard_at__gt=now - timedelta(seconds=settings.LIVE_SECONDS),
    )
    events = list(ScheduledEvent.objects.filter(is_open | Q(pk__in=back.values("event_id"))))
    witnesses = load_witnesses(events, now=now)
    for event in events:
        folded = fold(witnesses[event.pk], now=now, was_ended=event.status == EventStatus.ENDED.value)
        if folded is not None and (folded.status.value, folded.watched) != (event.status, event.watched):
            due.add(event.pk)
    return sorted(due)
