"""How much is made of what one machine brings: real machines stay far below, and a hostile one costs the others little.

What is beyond stays as it was received. Events that name the machine itself are never beyond, but take their turn.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

# Events of one document that do not name its machine: so many, and one for each machine of its set, as when a whole
# scale set is deleted. Azure lists a few.
EVENTS = 100
# So many events that a machine has not listed before are taken up at once; the rest of them by the next ticks.
PORTION = 25
PERIOD = timedelta(hours=1)
# Within the period: caches that nobody has named before, and statements of another name, set or `compute`.
NEW_CACHES = 50
NEW_STATEMENTS = 20


@dataclass(frozen=True, slots=True)
class Listed:
    """One event of a document: whether it names the machine, and whether the machine lists it already."""

    event_id: str
    own: bool
    known: bool


@dataclass(slots=True)
class Divided:
    """EventIds: those that are taken up now, those that come later, and those that are quarantined."""

    now: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    quarantined: set[str] = field(default_factory=set)


def divide(listed: Iterable[Listed], *, machines: int, room: int) -> Divided:
    """Divide the events of one document. `machines` are those of its set, `room` is how many new ones may be taken up.

    What is known goes first and is always taken up, or it would seem gone; then what names the machine; then as listed.
    """
    found, others = Divided(), EVENTS + machines
    for one in sorted(listed, key=lambda one: (not one.known, not one.own)):
        if not one.own:
            others -= 1
        if one.known:
            found.now.add(one.event_id)
        elif not one.own and others < 0:
            found.quarantined.add(one.event_id)
        elif room > 0:
            room -= 1
            found.now.add(one.event_id)
        else:
            found.later.add(one.event_id)
    return found


def names(resources: Iterable[str], own: Collection[str]) -> bool:
    """Whether an event hits the machine of one of these names (lower case)."""
    return any(name.lower() in own for name in resources)
