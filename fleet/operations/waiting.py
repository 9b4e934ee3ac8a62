"""Approvals that wait, for a second person or their condition: what becomes of them, again and again until it is known.

Asked for by the sweep every two seconds, and at once when a report has changed something about their event.
"""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction

from fleet.domain.conditions import Wait, Waited, When, next_wait
from fleet.domain.entries import EntryKind
from fleet.domain.guards import EventFacts, who_is_asked
from fleet.domain.states import ApprovalState
from fleet.models import Approval
from fleet.models.facts import load_facts
from fleet.operations import bells, relaying, waves
from fleet.operations.deciding import alone_with, judged
from fleet.operations.entries import entry, write

WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def advance(*, now: datetime, event_pks: Collection[int] | None = None) -> int:
    """Move on what need not wait any longer, of these events (row ids) or of all; how many moved.

    Looks without locks first; each move is a transaction of its own.
    """
    rows = Approval.objects.filter(state__in=WAITING).order_by("decided_at", "pk")
    if event_pks is not None:
        rows = rows.filter(event_id__any=list(event_pks))
    waiting = list(rows)
    if not waiting:
        return 0
    facts = load_facts([approval.event_id for approval in waiting], now=now)
    turns = waves.whose_turn({approval.wave_id for approval in waiting if approval.wave_id}, now=now)
    due = [
        approval
        for approval in waiting
        if _next(approval, facts[approval.event_id], may_go=approval.pk in turns, now=now).do is not Wait.STAY
    ]
    return sum(_move_on(approval.pk, approval.event_id, now=now) for approval in due)


def _next(approval: Approval, facts: EventFacts, *, may_go: bool, now: datetime) -> Waited:
    overcome = {one["code"] for one in approval.overrides}
    return next_wait(
        state=ApprovalState(approval.state),
        when=When(approval.when),
        facts=facts,
        overcome=frozenset(overcome),
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
        turns = waves.whose_turn({approval.wave_id} if approval.wave_id else set(), now=now)
        step = _next(approval, facts, may_go=approval.pk in turns, now=now)
        was = approval.state
        if step.do is Wait.VOID:
            return relaying.close(approval, ApprovalState.VOID, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.LAPSE:
            return relaying.close(approval, ApprovalState.LAPSED, facts=facts, now=now, reason=step.reason)
        if step.do is Wait.STAY or not relaying.move(approval, ApprovalState.GRANTED, granted_at=now):
            return False
        write(
            [
                entry(
                    EntryKind.APPROVAL_DUE,
                    f"{step.reason} The approval goes to Azure.",
                    at=now,
                    event_id=event_pk,
                    set_id=facts.set_id,
                    approval_id=approval.pk,
                    actor="Drydock",
                    via="relay",
                    before={"approval": was},
                    after={"approval": ApprovalState.GRANTED.value},
                )
            ]
        )
        relaying.offer(approval, facts, who_is_asked(facts)[0], now=now)
        transaction.on_commit(lambda: bells.hint_relay(approval.pk))
    return True
