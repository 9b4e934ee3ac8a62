"""What is set aside when it cannot be advanced, and when it is tried again."""

from datetime import timedelta
from enum import StrEnum

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(hours=1)
# Nothing is wrong with what somebody holds: it is tried again by the next tick.
HELD_PAUSE = timedelta(seconds=1)


class What(StrEnum):
    """Whose row it is: an event (its state and its way to Azure), its rules, an approval that waits, …"""

    EVENT = "event"
    RULES = "rules"
    APPROVAL = "approval"
    WAVE = "wave"
    DRILL = "drill"
    CACHE = "cache"
    # Only reports wait for one.
    MACHINE = "machine"


def pause(tries: int) -> timedelta:
    """How long to wait after so many tries: twice as long each time, up to an hour."""
    return min(FIRST_PAUSE * (1 << min(tries - 1, 20)), LONGEST_PAUSE)
