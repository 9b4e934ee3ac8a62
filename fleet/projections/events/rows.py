"""Scheduled events, as lists show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from fleet.domain.events.consequences import FAR_AHEAD, if_nobody_acts
from fleet.domain.events.types import is_advice
from fleet.domain.reason import Reason
from fleet.domain.shapes import like
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, Certainty, EndedAs, EventStatus
from fleet.models import ScheduledEvent
from fleet.projections.approvals.rows import ApprovalRow, by_event
from fleet.projections.changes import changed_at, with_changes
from fleet.projections.desk import attention
from fleet.projections.desk.attention import NOBODY, Attention, ClaimRow, HoldRow
from fleet.projections.pages import Page, Segment, ordered, read_page
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.sight import seen

OPEN = (EventStatus.SCHEDULED.value, EventStatus.STARTED.value)


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event. `seconds_left` until NotBefore, never below 0, None once it is not scheduled or has no time."""

    id: int
    event_id: str
    event_type: str
    resource_type: str
    status: EventStatus
    ended_as: EndedAs | None
    certainty: Certainty | None
    approved_elsewhere: bool
    source: str
    description: str
    duration_seconds: int | None
    not_before: datetime | None
    resources: tuple[str, ...]
    set: SetRef
    first_seen_at: datetime
    notice_seconds: int | None
    started_at: datetime | None
    ended_at: datetime | None
    watched: bool
    warnings: tuple[Reason | str, ...]
    version: int
    # The live approval, else the newest one.
    approval: ApprovalRow | None
    claim: ClaimRow | None
    hold: HoldRow | None
    # A rehearsal: Azure knows nothing of it.
    drill: bool
    needs_decision: bool
    if_nobody_acts: Reason
    # By the database's clock; of the event, its approvals, orders, claims and holds.
    changed_at: datetime
    seconds_left: float | None
    server_time: datetime

    @property
    def open(self) -> bool:
        return self.status is not EventStatus.ENDED

    @property
    def started_seconds(self) -> float | None:
        """How long it has been, or was, Started; None before that."""
        if self.started_at is None:
            return None
        return max(0.0, ((self.ended_at or self.server_time) - self.started_at).total_seconds())

    @property
    def approval_to_start_seconds(self) -> float | None:
        """From our approval to Started; None without one, or while it has not started."""
        granted = self.approval.granted_at if self.approval and self.approval.accepted_at else None
        if self.started_at is None or granted is None:
            return None
        return max(0.0, (self.started_at - granted).total_seconds())

    @property
    def past_not_before(self) -> bool:
        return self.status is EventStatus.SCHEDULED and self.seconds_left == 0

    @property
    def far_ahead(self) -> bool:
        return self.seconds_left is not None and self.seconds_left > FAR_AHEAD.total_seconds()


def _seconds_left(event: ScheduledEvent, now: datetime) -> float | None:
    if event.status != EventStatus.SCHEDULED.value or event.not_before is None:
        return None
    return round(max(0.0, (event.not_before - now).total_seconds()), 3)


def current(rows: Sequence[ApprovalRow]) -> ApprovalRow | None:
    return next((row for row in rows if row.state in LIVE_APPROVALS), rows[0] if rows else None)


def event_row(
    event: ScheduledEvent, approval_rows: Sequence[ApprovalRow], *, now: datetime, seen_to: Attention = NOBODY
) -> EventRow:
    """Shape one event loaded with its set. No query."""
    approval = current(approval_rows)
    status = EventStatus(event.status)
    in_time = event.not_before is None or event.not_before > now
    held = seen_to.hold is not None and not seen_to.hold.by_rule
    # As `attention.needs_decision` asks the database.
    undecided = not held if approval is None or not approval.live else approval.state is ApprovalState.PROPOSED
    return like(
        EventRow,
        event,
        set=set_ref(event.availability_set),
        approval=approval,
        claim=seen_to.claim,
        hold=seen_to.hold,
        needs_decision=status is EventStatus.SCHEDULED and in_time and undecided and not is_advice(event.event_type),
        if_nobody_acts=if_nobody_acts(
            status=status,
            not_before=event.not_before,
            watched=event.watched,
            now=now,
            drill=event.drill,
            event_type=event.event_type,
        ),
        changed_at=changed_at(event),
        seconds_left=_seconds_left(event, now),
        server_time=now,
    )


def event_rows(events: Sequence[ScheduledEvent], *, now: datetime) -> tuple[EventRow, ...]:
    """Shape events loaded with their sets. Three queries, for the approvals, claims and holds."""
    decided = by_event(events, now=now)
    seen_to = attention.of_events([event.pk for event in events])
    return tuple(
        event_row(event, decided.get(event.pk, ()), now=now, seen_to=seen_to.get(event.pk, NOBODY)) for event in events
    )


def listing(
    *,
    now: datetime,
    events: QuerySet[ScheduledEvent] | None = None,
    order: str = "",
    cursor: str | None = None,
    size: int | None = None,
) -> Page[EventRow]:
    """Open events by time left, then ended ones, newest first; or all by a column. At most five queries.

    `events` is a filtered queryset (see `filters.EventFilter`).
    """
    rows = seen(ScheduledEvent) if events is None else events
    rows = with_changes(rows.select_related("availability_set"))
    still_open: QuerySet[ScheduledEvent] = rows.filter(status__in=OPEN).annotate(
        due=Coalesce("not_before", "first_seen_at")
    )
    ended = rows.filter(status=EventStatus.ENDED.value)
    segments = [Segment(still_open, "due"), Segment(ended, "first_seen_at", descending=True)]
    page = read_page(ordered(rows, order, segments, may_lack=["not_before"]), cursor=cursor, size=size)
    return page.map(lambda found: event_rows(found, now=now))


def ids_by_time(events: QuerySet[ScheduledEvent], *, limit: int) -> list[str]:
    """EventIds of a filtered queryset by time left, those without a time first. One query."""
    rows = events.order_by(F("not_before").asc(nulls_first=True), "pk")
    return list(rows.values_list("event_id", flat=True)[:limit])


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """An event as far as naming it goes."""

    event_id: str
    event_type: str
    resources: tuple[str, ...]


def named_events(event_ids: Sequence[str]) -> tuple[NamedEvent, ...]:
    """These events, in this order. One query, or none."""
    if not event_ids:
        return ()
    found = {row.event_id: row for row in seen(ScheduledEvent).filter(event_id__in=event_ids)}
    return tuple(
        like(NamedEvent, found[one], resources=tuple(found[one].resources)) for one in event_ids if one in found
    )
