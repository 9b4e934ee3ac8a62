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
    # Nobody holds these, and only reports wait: the rest of a document with many events, and what was beyond the
    # bounds of its machine (`fleet.domain.intake.bounds`).
    DOCUMENT = "document"
    BEYOND = "beyond"


# What a report waits for because somebody holds it.
HELD = (What.EVENT, What.CACHE, What.MACHINE)


def pause(tries: int) -> timedelta:
    """How long to wait after so many tries: twice as long each time, up to an hour."""
    return min(FIRST_PAUSE * (1 << min(tries - 1, 20)), LONGEST_PAUSE)
