"""When time alone may change the state of an event."""

from collections.abc import Collection
from datetime import datetime

from fleet.domain.due import NEVER, SOON, first_after
from fleet.domain.events.sightings import ComputedState, Witness, is_unconfirmed
from fleet.domain.events.types import DELETING_TYPES
from fleet.domain.states import EventStatus


def due_at(state: ComputedState | None, witnesses: Collection[Witness], *, now: datetime) -> datetime:
    """When to compute an event again of which there is no news. Turns of presence are news."""
    if state is None or state.status is EventStatus.ENDED:
        return NEVER
    gone = any(w.listing is not None and not w.listing.foreign and w.listing.gone_at is not None for w in witnesses)
    if gone and (not state.watched or any(is_unconfirmed(w) for w in witnesses)):
        # It ends with the poll of a machine that has not polled since, or that confirms an answer in doubt.
        return now + SOON
    return first_after(now, [state.not_before]) if state.event_type in DELETING_TYPES else NEVER
