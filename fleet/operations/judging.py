"""What follows from news without a person: approvals whose condition is met, and what the rules decide."""

from collections.abc import Collection
from datetime import datetime

from fleet.domain.states import ApprovalState
from fleet.models import Approval
from fleet.operations import rehearsing, relaying, ruling, waiting, waves


def follow(event_pks: Collection[int] | None = None, *, now: datetime) -> None:
    """Judge these events (row ids) and what stands beside them, or everything that is open."""
    rehearsing.advance(now=now)
    waves.advance(now=now)
    waiting.advance(now=now, event_pks=event_pks)
    ruling.decide(now=now, event_pks=event_pks)


def take_on(*, approval_id: int, now: datetime, via: str) -> None:
    """What follows at once from a decision: its condition may be met already, and then its order is rung."""
    row = Approval.objects.filter(pk=approval_id).values_list("event_id", "state").first()
    if row is not None and row[1] == ApprovalState.WAITING.value:
        waiting.advance(now=now, event_pks=[row[0]])
    relaying.advance_approval(approval_id=approval_id, now=now, via=via)
