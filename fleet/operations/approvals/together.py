"""Several events decided in one call, each on its own: one refusal stops nothing, and what somebody holds keeps nobody
waiting.

Some at a time are locked and read at once, since reading is most of what a decision takes.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import TypeVar

from django.db import DatabaseError, OperationalError, transaction

from fleet.domain.patience import met_a_limit
from fleet.models import ScheduledEvent
from fleet.models.facts.events import facts_standing, load_standing
from fleet.operations.approvals.approve import HOME, Judged, home_name
from fleet.operations.aside import is_away
from fleet.operations.events import compute
from fleet.operations.locks import Lock, impatient, take_free
from fleet.operations.timeline.entries import gathered

T = TypeVar("T")

# So many are read at once: whoever wants to decide about one of them waits for all of these.
AT_ONCE = 20
# So many events that stay locked at the second try are waited for in full; the others that stay locked are not.
SECOND_TRIES = 2


def each(
    event_ids: Sequence[str],
    act: Callable[[str, Judged | None], T],
    held: Callable[[str, OperationalError], T],
    *,
    clock: Callable[[], datetime],
    ahead: bool,
) -> list[T]:
    """What `act` gives for each event (EventId), or `held` where somebody holds it for too long, in the order given.
    It takes longer than the time of one call could stand for, so it is given a clock.

    `act` gets what guards judge where that was read `ahead` with the event locked, else None. It may be called twice
    for one event, the first time rolled back. Raises what Postgres raises when it is away.
    """
    found: dict[str, T] = {}
    locked: list[str] = []
    for at in range(0, len(event_ids), AT_ONCE):
        portion = event_ids[at : at + AT_ONCE]
        if ahead and len(portion) > 1:
            try:
                found |= _together(portion, act, now=clock())
            except DatabaseError as error:
                # What they have to say together cannot be written just now: each for itself.
                if is_away(error):
                    raise
        for event_id in portion:
            if event_id in found:
                continue
            try:
                # After the first one the others do not wait as long for theirs.
                found[event_id] = _alone(event_id, act, hurried=bool(locked))
            except OperationalError as error:
                if not met_a_limit(error):
                    raise
                locked.append(event_id)
    # Others may have decided about the same events meanwhile, or about others of the same service, which takes a moment
    # each. Only what stays locked is given up.
    patience = SECOND_TRIES
    for event_id in locked:
        try:
            found[event_id] = _alone(event_id, act, hurried=patience <= 0)
        except OperationalError as error:
            if not met_a_limit(error):
                raise
            patience -= 1
            found[event_id] = held(event_id, error)
    return [found[event_id] for event_id in event_ids]


def _alone(event_id: str, act: Callable[[str, Judged | None], T], *, hurried: bool) -> T:
    with transaction.atomic(), impatient() if hurried else nullcontext():
        return act(event_id, None)


@gathered()
def _together(event_ids: Sequence[str], act: Callable[[str, Judged | None], T], *, now: datetime) -> dict[str, T]:
    """The same for those that nobody holds, by EventId, in one transaction. What cannot be done is left out."""
    found = {}
    for event_id, judged in _judged(event_ids, now=now).items():
        try:
            with gathered():
                found[event_id] = act(event_id, judged)
        except DatabaseError as error:
            if is_away(error):
                raise
    return found


def _judged(event_ids: Sequence[str], *, now: datetime) -> dict[str, Judged]:
    """What guards judge of those whose rows and homes are free, all of which are locked: one of each home, since what
    is decided about one counts for its neighbours. Without those that are decided already, as taking over writes first.
    """
    rows = ScheduledEvent.objects.filter(event_id__in=event_ids).values_list("event_id", "pk", *HOME)
    known = {event_id: (pk, home_name(service, set_id)) for event_id, pk, service, set_id in rows}
    first = {known[event_id][1]: known[event_id][0] for event_id in reversed(event_ids) if event_id in known}
    free = take_free(Lock.DECISIONS, sorted(first))
    events = compute.lock([first[name] for name in free], pass_by=True)
    standing = load_standing(events, now=now)
    compute.compute_state(events, now=now, standing=standing)
    facts = facts_standing(events, standing, now=now)
    return {event.event_id: Judged(event.pk, facts[event.pk]) for event in events if facts[event.pk].decision is None}
