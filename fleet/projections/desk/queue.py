"""The decision queue: what needs a person, by time left."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.events.consequences import FAR_AHEAD
from fleet.models import ScheduledEvent
from fleet.projections.desk.attention import needs_decision
from fleet.projections.events.blast import BlastRadius, blast_radii
from fleet.projections.events.rows import OPEN, EventRow, event_rows

LIMIT = 200


@dataclass(frozen=True, slots=True)
class QueueItem:
    event: EventRow
    blast: BlastRadius


@dataclass(frozen=True, slots=True)
class Pulse:
    """How many events need a decision within 24 hours, and when the first of them is due."""

    waiting: int
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class DecisionQueue:
    """`waiting` needs a decision or a second person; `under_way` is decided, held, started or past NotBefore;
    `far_ahead` lies beyond 24 hours; `drills` are rehearsals, which nothing else here counts.

    Each is sorted by time left. `more` is True when there are more open events than are shown.
    """

    waiting: tuple[QueueItem, ...]
    under_way: tuple[QueueItem, ...]
    far_ahead: tuple[QueueItem, ...]
    drills: tuple[QueueItem, ...]
    more: bool
    server_time: datetime

    @property
    def pulse(self) -> Pulse:
        """What `pulse` would ask for again."""
        times = [item.event.not_before for item in self.waiting if item.event.not_before is not None]
        return Pulse(waiting=len(self.waiting), next_at=min(times, default=None))

    @property
    def items(self) -> tuple[QueueItem, ...]:
        return self.waiting + self.under_way + self.far_ahead + self.drills

    @property
    def set_ids(self) -> tuple[int, ...]:
        """The sets concerned, the most urgent first."""
        return tuple(dict.fromkeys(item.event.set.id for item in self.items))


def decision_queue(*, now: datetime) -> DecisionQueue:
    """All open events in four parts. Five queries."""
    events = list(
        ScheduledEvent.objects.filter(status__in=OPEN)
        .select_related("availability_set")
        .order_by("not_before", "pk")[: LIMIT + 1]
    )
    more = len(events) > LIMIT
    events = events[:LIMIT]
    blasts = blast_radii(events, now=now)
    everything = [QueueItem(event=row, blast=blasts[row.id]) for row in event_rows(events, now=now)]
    drills = [item for item in everything if item.event.drill]
    items = [item for item in everything if not item.event.drill]
    far = [item for item in items if item.event.needs_decision and item.event.far_ahead]
    waiting = [item for item in items if item.event.needs_decision and not item.event.far_ahead]
    under_way = [item for item in items if not item.event.needs_decision]
    return DecisionQueue(
        waiting=tuple(waiting),
        under_way=tuple(under_way),
        far_ahead=tuple(far),
        drills=tuple(drills),
        more=more,
        server_time=now,
    )


def pulse(*, now: datetime) -> Pulse:
    """What every page carries in its head. One query."""
    waiting = ScheduledEvent.objects.filter(needs_decision(now=now, until=now + FAR_AHEAD), drill=False)
    times = list(waiting.order_by("not_before", "pk").values_list("not_before", flat=True)[:LIMIT])
    return Pulse(waiting=len(times), next_at=min((time for time in times if time is not None), default=None))
