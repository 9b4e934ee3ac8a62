"""The decision queue: what needs a person, by time left."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef

from fleet.domain.events.consequences import FAR_AHEAD
from fleet.domain.people import Place, Rights
from fleet.domain.states import ApprovalState
from fleet.models import Approval, ScheduledEvent
from fleet.models.facts.events import place_of
from fleet.projections.desk.attention import needs_decision
from fleet.projections.events.blast import BlastRadius, blast_radii
from fleet.projections.events.rows import OPEN, EventRow, event_rows

LIMIT = 200
# Somebody who decides nothing looks at everything.
ANYBODY = Rights()
PLACE = [f"availability_set__{name}" for name in ("kind", "name", "service", "resource_group")]


@dataclass(frozen=True, slots=True)
class QueueItem:
    event: EventRow
    blast: BlastRadius
    place: Place

    def mine(self, rights: Rights) -> bool:
        """Whether somebody with these rights decides it."""
        approval = self.event.approval
        return rights.decides(self.place, proposed=approval is not None and approval.state == ApprovalState.PROPOSED)


@dataclass(frozen=True, slots=True)
class Pulse:
    """How many events need a decision within 24 hours, and when the first of them is due."""

    waiting: int
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class DecisionQueue:
    """`waiting` needs a decision or a second person, `of_others` too, but not from whoever looks; `under_way` is
    decided, held, started or past NotBefore; `far_ahead` lies beyond 24 hours; `drills` are rehearsals, which nothing
    else here counts.

    Each is sorted by time left. `more` is True when there are more open events than are shown.
    """

    waiting: tuple[QueueItem, ...]
    of_others: tuple[QueueItem, ...]
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
        return self.waiting + self.of_others + self.under_way + self.far_ahead + self.drills

    @property
    def set_ids(self) -> tuple[int, ...]:
        """The sets concerned, the most urgent first."""
        return tuple(dict.fromkeys(item.event.set.id for item in self.items))


def decision_queue(*, now: datetime, rights: Rights = ANYBODY) -> DecisionQueue:
    """All open events in five parts, for somebody with these rights. Five queries."""
    events = list(
        ScheduledEvent.objects.filter(status__in=OPEN)
        .select_related("availability_set")
        .order_by("not_before", "pk")[: LIMIT + 1]
    )
    more = len(events) > LIMIT
    events = events[:LIMIT]
    blasts = blast_radii(events, now=now)
    places = {event.pk: place_of(event.availability_set) for event in events}
    everything = [
        QueueItem(event=row, blast=blasts[row.id], place=places[row.id]) for row in event_rows(events, now=now)
    ]
    drills = [item for item in everything if item.event.drill]
    items = [item for item in everything if not item.event.drill]
    far = [item for item in items if item.event.needs_decision and item.event.far_ahead]
    waiting = [item for item in items if item.event.needs_decision and not item.event.far_ahead]
    under_way = [item for item in items if not item.event.needs_decision]
    return DecisionQueue(
        waiting=tuple(item for item in waiting if item.mine(rights)),
        of_others=tuple(item for item in waiting if not item.mine(rights)),
        under_way=tuple(under_way),
        far_ahead=tuple(far),
        drills=tuple(drills),
        more=more,
        server_time=now,
    )


def pulse(*, now: datetime, rights: Rights = ANYBODY) -> Pulse:
    """What every page carries in its head, for somebody with these rights. One query."""
    waiting = ScheduledEvent.objects.filter(needs_decision(now=now, until=now + FAR_AHEAD), drill=False)
    proposed = Approval.objects.filter(event=OuterRef("pk"), state=ApprovalState.PROPOSED.value)
    rows = waiting.annotate(proposed=Exists(proposed)).order_by("not_before", "pk").select_related("availability_set")
    times = [
        row.not_before
        for row in rows.only("not_before", *PLACE)[:LIMIT]
        if rights.decides(place_of(row.availability_set), proposed=row.proposed)
    ]
    return Pulse(waiting=len(times), next_at=min((time for time in times if time is not None), default=None))
