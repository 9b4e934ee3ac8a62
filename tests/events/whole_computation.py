"""What is left to do, found by computing everything that is open: the slow way, and the one that cannot forget."""

from datetime import datetime

from django.db.models import Q

from fleet.domain.approvals.conditions import Wait, next_wait
from fleet.domain.caches.maintenances import ACTIVE, operations_of, status_of
from fleet.domain.events import compute_state
from fleet.domain.orders.next_step import Do
from fleet.domain.policy.rules import verdict
from fleet.domain.states import OPEN_EVENTS, EventStatus, Presence
from fleet.domain.waves import Signal, judge
from fleet.models import Approval, Drill, Maintenance, ScheduledEvent, Sighting, Wave
from fleet.models.facts.decisions import load_decisions, load_members, return_timeout, whose_turn
from fleet.models.facts.events import load_facts, load_witnesses, machine_presence
from fleet.models.policy import rule_of, rules_in_force, stop_in_force
from fleet.operations import caches as maintenances
from fleet.operations import drills
from fleet.operations.approvals import conditions
from fleet.operations.orders import advance as orders
from fleet.operations.policy import apply


def left_to_do(now: datetime) -> list[str]:
    """Everything that a tick would have to do now; waking again is left out, since it changes nothing."""
    return [*_steps(now), *_states(now), *_waiting(now), *_rules(now), *_drills_and_waves(now), *_caches(now)]


def _steps(now: datetime) -> list[str]:
    found = orders.steps(None, now).values()
    quiet = (Do.NOTHING, Do.WAKE)
    return [f"approval {one.approval.pk}: {one.step.do}" for one in found if one.step.do not in quiet]


def _states(now: datetime) -> list[str]:
    listed = Sighting.objects.filter(gone_at__isnull=True, foreign=False).select_related(
        "machine__presence", "machine__latest_document"
    )
    back = [row.event_id for row in listed if machine_presence(row.machine, now=now) is Presence.LIVE]
    events = list(ScheduledEvent.objects.filter(Q(status__in=OPEN_EVENTS) | Q(pk__in=back)))
    witnesses = load_witnesses(events, now=now)
    found = []
    for event in events:
        state = compute_state(witnesses[event.pk], now=now, was_ended=event.status == EventStatus.ENDED.value)
        if state is not None and (state.status.value, state.watched) != (event.status, event.watched):
            found.append(f"event {event.pk} is {event.status}, computed {state.status} {state.watched}")
    return found


def _waiting(now: datetime) -> list[str]:
    rows = list(Approval.objects.filter(state__in=conditions.WAITING))
    facts = load_facts([row.event_id for row in rows], now=now)
    turns = whose_turn({row.wave_id for row in rows if row.wave_id}, now=now)
    said = load_decisions(rows, facts, now=now)
    steps = [(row, next_wait(row, facts[row.event_id], said[row.pk], may_go=row.pk in turns, now=now)) for row in rows]
    return [f"approval {row.pk} of {row.when}: {step.do}" for row, step in steps if step.do is not Wait.STAY]


def _rules(now: datetime) -> list[str]:
    rules = [rule_of(row) for row in rules_in_force(now=now).values()]
    if not rules or stop_in_force() is not None:
        return []
    events = list(apply._undecided(now))
    facts = load_facts([event.pk for event in events], now=now)
    said = [(event, verdict(rules, facts[event.pk], now=now)) for event in events]
    return [f"event {event.pk}: a rule would {found.does}" for event, found in said if found.acts]


def _drills_and_waves(now: datetime) -> list[str]:
    open_drills = Drill.objects.filter(closed_at__isnull=True).select_related("event")
    found = [f"drill {one.pk}" for one in open_drills if drills._ending(one, now) or drills._to_start(one)]
    running = list(Wave.objects.filter(state="RUNNING").values_list("pk", flat=True))
    for wave_id, members in load_members(running, now=now).items():
        if judge(members, now=now, return_timeout=return_timeout()).do in (Signal.STOP, Signal.FINISH):
            found.append(f"wave {wave_id}")
    return found


def _caches(now: datetime) -> list[str]:
    active = Maintenance.objects.filter(status__in=[status.value for status in ACTIVE])
    found = []
    for row in active.prefetch_related("notifications").order_by("cache", "pk"):
        heard = [maintenances._heard(one) for one in row.notifications.all()]
        if any(status_of(operation, now=now).value != row.status for operation in operations_of(heard)):
            found.append(f"cache {row.cache_id}, shard {row.shard}")
    return found
