"""What follows from news without a person: approvals whose condition is met, and what the rules decide."""

from collections.abc import Collection
from datetime import datetime

from fleet.operations import ruling, waiting


def follow(event_pks: Collection[int] | None = None, *, now: datetime) -> None:
    """Judge these events (row ids) and what stands beside them, or everything that is open."""
    waiting.advance(now=now, event_pks=event_pks)
    ruling.decide(now=now, event_pks=event_pks)
