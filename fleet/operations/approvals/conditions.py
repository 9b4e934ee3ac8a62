"""Approvals that wait, for a second person or their condition: what becomes of them, again and again until it is known.

Asked for by reconciling every two seconds, and at once when a report has changed something about their event.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from fleet.domain.actor import DRYDOCK
from fleet.domain.approvals.conditions import Wait, Waited, When, next_wait
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.approvals.recheck import Decision
from fleet.domain.aside import What
from fleet.domain.states import ApprovalState
from fleet.domain.timeline import EntryKind
from fleet.models import Approval
from fleet.models.facts.decisions import load_decisions
from fleet.models.facts.events import load_facts
from fleet.models.facts.waves import whose_turn
from fleet.operations.approvals.approve import alone_with, judged, set_off
from fleet.operations.aside import Apart
from fleet.operations.orders.states import close, give_back, move, tell_approval

WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def advance(*, now: datetime, event_pks: Collection[int] | None = None) -> int:
    """Move on what need not wait any longer, of these events (row ids) or of all; how many moved.

    Looks without locks first; each move is a transaction of its own.
    """
    # As in most ticks.
    if event_pks is not None and not event_pks:
        return 0
    rows = Approval.objects.filter(state__in=WAITING).order_by("decided_at", "pk")
    if event_pks is not None:
        rows = rows.filter(event_id__any=list(event_pks))
    with Apart(What.APPROVAL, now=now) as apart:
        due = apart.look(list(rows.values_list("pk", flat=True)), partial(_due, now=now))
        return sum(apart.run(pk, partial(_move_on, pk, event_pk, now=now)) or False for pk, event_pk in due)


def about_to_go(*, until: datetime) -> list[tuple[datetime, list[int]]]:
    """Times up to this one at which approvals can no longer be undone, with the events (row ids) that then go. One
    query.
    """
    rows = Approval.objects.filter(state=ApprovalState.WAITING.value, when=When.UNDO.value, due_at__lte=until)
    found: dict[datetime, list[int]] = defaultdict(list)
    for at, event_pk in rows.order_by("due_at", "pk").values_list("due_at", "event_id"):
        if at is not None:
            found[at].append(event_pk)
    return list(found.items())


def _due(approval_ids: Sequence[int], *, now: datetime) -> list[tuple[int, int]]:
    """Those of these approvals (row ids) that have a step to take, with their events."""
    waiting = list(Approval.objects.filter(pk__in=approval_ids).order_by("decided_at", "pk"))
    facts = load_facts([approval.event_id for approval in waiting], now=now)
    decisions = load_decisions(waiting, facts, now=now)
    turns = whose_turn({approval.wave_id for approval in waiting if approval.wave_id}, now=now)

    def step(approval: Approval) -> Waited:
        of_event, decision = facts[approval.event_id], decisions[approval.pk]
        return _next(approval, of_event, decision, may_go=approval.pk in turns, now=now)

    return [(approval.pk, approval.event_id) for approval in waiting if step(approval).do is not Wait.STAY]


def _next(approval: Approval, facts: EventFacts, decision: Decision, *, may_go: bool, now: datetime) -> Waited:
    return next_wait(
        state=ApprovalState(approval.state),
        when=When(approval.when),
        facts=facts,
        decision=decision,
        due_at=approval.due_at,
        may_go=may_go,
        now=now,
    )


def _move_on(approval_id: int, event_pk: int, *, now: datetime) -> bool:
    with alone_with(event_pk):
        facts = judged(event_pk, now=now)
        approval = Approval.objects.select_related("event").get(pk=approval_id)
        if approval.state not in WAITING:
            return False
        turns = whose_turn({approval.wave_id} if approval.wave_id else set(), now=now)
        decision = load_decisions([approval], {event_pk: facts}, now=now)[approval.pk]
        step = _next(approval, facts, decision, may_go=approval.pk in turns, now=now)
        was = approval.state
        if step.do is Wait.VOID:
            return close(approval, ApprovalState.VOID, DRYDOCK, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.LAPSE:
            return close(approval, ApprovalState.LAPSED, DRYDOCK, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.RETURN:
            return give_back(approval, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.STAY or not move(approval, ApprovalState.GRANTED, granted_at=now):
            return False
        tell_approval(EntryKind.APPROVAL_DUE, DRYDOCK, approval, facts, was=was, now=now, reason=step.reason)
        set_off(approval, facts, now=now)
    return True
