"""Processes of Drydock whose clock differs too much from the database's."""

from datetime import datetime

from fleet.models.clocks import OVER_AFTER, WrongClock
from fleet.projections.sight import seen


def wrong_clocks(*, now: datetime) -> dict[str, float]:
    """By process (`web 123@host`), the seconds by which its clock is ahead; negative where it is behind. One query."""
    rows = seen(WrongClock).filter(seen_at__gt=now - OVER_AFTER).order_by("process")
    return {f"{row.kind} {row.process}": row.skew_seconds for row in rows}
