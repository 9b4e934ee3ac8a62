"""Waves: several events of a service approved in turn."""

from collections.abc import Collection
from datetime import datetime


def whose_turn(wave_ids: Collection[int], *, now: datetime) -> set[int]:
    """The row ids of the approvals of these waves that may go now."""
    return set()
