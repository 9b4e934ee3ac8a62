"""Rules at work: undecided events judged against the standing decisions, all events of a set together."""

from collections.abc import Collection
from datetime import datetime


def decide(*, now: datetime, event_pks: Collection[int] | None = None) -> int:
    """Judge the undecided open events, all or those of the sets of these (row ids); how many a rule decided."""
    return 0
