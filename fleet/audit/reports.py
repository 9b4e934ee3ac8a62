"""Reports on one event, and for the handover of a shift."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from fleet.domain import history
from fleet.domain.history import DECISIONS, Decided, Happened
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Claim, Entry, Hold, ScheduledEvent
from fleet.models.facts.events import hold_reason, name_of
from fleet.models.timeline import ACTING
from fleet.projections import intake
from fleet.projections.events.detail import EventDetail, event_detail
from fleet.projections.events.rows import OPEN, EventRow, event_rows
from fleet.projections.intake import EventDocuments
from fleet.projections.pages import MAX_PAGE_SIZE, Page
from fleet.projections.timeline import entries
from fleet.projections.timeline.entries import TimelineRow, fleet
from fleet.projections.visibility import visible

T = TypeVar("T")
Row = Mapping[str, Any]
# Entries in a report; the timeline has them all.
MOST = 500


@dataclass(frozen=True, slots=True)
class LocalWord:
    """A user's claim of an event, or a hold that left it to Azure. `said` is the reason given. `ended_at` is set if it
    was withdrawn or has ended.
    """

    kind: str
    by: Reason | str
    at: datetime
    said: Reason | str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventReport:
    """Report on one event. `timeline` contains the entries, oldest first; `more`: there are others that the report
    omits.
    """

    verdict: Reason
    detail: EventDetail
    local: tuple[LocalWord, ...]
    timeline: tuple[TimelineRow, ...]
    more: bool
    raw: EventDocuments
    made_at: datetime

    @property
    def acts(self) -> tuple[TimelineRow, ...]:
        """The entries about actions of users and rules."""
        return tuple(row for row in self.timeline if row.is_act)


def event_report(*, event_id: str, now: datetime) -> EventReport | None:
    """Return the report on the event with this EventId (in any case), or None if there is none. Seven queries more than
    the page of the event.
    """
    detail = event_detail(event_id=event_id, now=now)
    raw = intake.for_event(event_id=event_id)
    if detail is None or raw is None:
        return None
    story = entries.for_event(event_id=event_id, size=MOST)
    local = _local(detail.event.id)
    verdict, more = _verdict(detail, local), story.next is not None
    return EventReport(verdict, detail, local, story.results, more=more, raw=raw, made_at=now)


def _local(event_pk: int) -> tuple[LocalWord, ...]:
    claims = visible(Claim).filter(event=event_pk).select_related("by")
    holds = visible(Hold).filter(event=event_pk).select_related("by", "rule")
    words = [from_row(LocalWord, row, kind="claim", by=row.by.get_username(), said=row.comment) for row in claims]
    words += [from_row(LocalWord, row, kind="hold", by=name_of(row), said=hold_reason(row.reason)) for row in holds]
    return tuple(sorted(words, key=lambda word: word.at))


def _verdict(detail: EventDetail, local: tuple[LocalWord, ...]) -> Reason:
    event = detail.event
    # The approval that Azure accepted, else the newest.
    approval = next((row for row in detail.approvals if row.accepted_at), next(iter(detail.approvals), None))
    holds = [word for word in local if word.kind == "hold"]
    accepted = approval is not None and approval.accepted_at is not None
    decided = history.decided(approval.state if approval else None, accepted=accepted, held=bool(holds))
    by = holds[-1].by if decided is Decided.LEFT else approval.by if approval else ""
    accepted_at = approval.accepted_at if approval and decided is Decided.ACCEPTED else None
    lead = (event.not_before - accepted_at).total_seconds() if event.not_before and accepted_at else None
    happened = history.happened(event.status, started=event.started_at is not None, ended_as=event.ended_as)
    return Reason(
        "event-verdict",
        event_type=event.event_type,
        resources=list(event.resources),
        set=event.set.label,
        drill=event.drill,
        notice=event.notice_seconds,
        decided=decided.value,
        by=by,
        lead=lead,
        elsewhere=event.approved_elsewhere,
        happened=happened.value,
        took=event.started_seconds if happened is Happened.RAN else None,
        inferred=event.certainty == "inferred",
    )


# Handover: decisions, starts, ends and failures between two times, and events that are open now.

# Limit of entries in each part.
MAX_HANDOVER_ROWS = 100
MILESTONES = {
    "failed": history.FAILED,
    "started": history.STARTED,
    "ended": history.ENDED,
    "announced": history.ANNOUNCED,
}


@dataclass(frozen=True, slots=True)
class Part:
    """Section of a handover: entries of some kinds, newest first. `more`: there are others. `kinds` is the filter that
    shows all of them in the timeline.
    """

    rows: tuple[TimelineRow, ...]
    more: bool
    kinds: tuple[EntryKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """Handover of a shift. `parts` are the sections by name. `still_open` are all events that are open now,
    least time left first. `missed` are the events whose NotBefore passed in this time without a decision.
    """

    since: datetime
    until: datetime
    parts: Mapping[str, Part]
    still_open: tuple[EventRow, ...]
    more_open: bool
    missed: tuple[EventRow, ...]
    more_missed: bool
    server_time: datetime

    @property
    def due(self) -> tuple[EventRow, ...]:
        """The open events that are due within the next shift."""
        end = self.server_time + history.SHIFT
        return tuple(row for row in self.still_open if row.status == "SCHEDULED" and (row.not_before or end) <= end)


def span(
    *, since: datetime | None, until: datetime | None, handover_read_until: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """Return the begin and end of a handover's time span. By default it ends now, and begins where the user's last
    handover ended, or else one shift earlier.
    """
    until = min(until or now, now)
    since = since or handover_read_until or until - history.SHIFT
    return max(min(since, until), until - history.LONGEST_LOOK), until


def handover(*, since: datetime, until: datetime, now: datetime) -> Handover:
    """Return the handover with the entries from `since` until just before `until`. Fourteen queries, and one for the
    names in each section.
    """
    within = visible(Entry).filter(at__gte=since, at__lt=until)
    acts = within.filter(via__in=ACTING)
    not_of_desk = [kind.value for kind in (*DECISIONS, *history.STARTED)]
    waiting = visible(ScheduledEvent).filter(status__in=OPEN).select_related("availability_set")
    passed = visible(ScheduledEvent).filter(drill=False, not_before__gte=since, not_before__lt=until)
    missed = lapsed(passed.select_related("availability_set"), now=now)
    events, late = (list(rows.order_by("not_before", "pk")[: MAX_HANDOVER_ROWS + 1]) for rows in (waiting, missed))
    return Handover(
        since=since,
        until=until,
        parts={
            "decided": _part(acts, DECISIONS),
            **{name: _part(within, kinds) for name, kinds in MILESTONES.items()},
            "desk": _part(acts.exclude(kind__in=not_of_desk)),
        },
        still_open=event_rows(events[:MAX_HANDOVER_ROWS], now=now),
        more_open=len(events) > MAX_HANDOVER_ROWS,
        missed=event_rows(late[:MAX_HANDOVER_ROWS], now=now),
        more_missed=len(late) > MAX_HANDOVER_ROWS,
        server_time=now,
    )


def _part(rows: QuerySet[Entry], kinds: tuple[EntryKind, ...] = ()) -> Part:
    entries = rows.filter(kind__in=[kind.value for kind in kinds]) if kinds else rows
    page = fleet(entries=entries, size=MAX_HANDOVER_ROWS)
    return Part(page.results, more=page.next is not None, kinds=kinds)


def lapsed(events: QuerySet[ScheduledEvent], *, now: datetime) -> QuerySet[ScheduledEvent]:
    """Return those of the events that Azure was free to start before a decision from Drydock reached it."""
    decided = visible(Approval).filter(event=OuterRef("pk")).exclude(state__in=["LAPSED", "REFUSED", "WITHDRAWN"])
    late = visible(Approval).filter(event=OuterRef("event"), state__in=["LAPSED", "REFUSED"])
    # One condition below another: for an OR of two, Postgres reads all approvals.
    held = visible(Hold).filter(~Exists(late), event=OuterRef("pk"), by__isnull=False)
    # Events that ended before NotBefore needed no decision.
    gone = Q(ended_at__isnull=False, ended_at__lt=F("not_before"))
    behind = events.filter(not_before__lte=now, approved_elsewhere=False).exclude(gone)
    return behind.filter(~Exists(decided), ~Exists(held))


def every_page(read: Callable[..., Page[T]]) -> Iterator[tuple[T, ...]]:
    """Call `read` for page after page, and yield the rows of each. Memory use and query time stay small. A page may be
    empty although others follow.
    """
    cursor = None
    while True:
        page = read(cursor=cursor, size=MAX_PAGE_SIZE)
        yield page.results
        cursor = page.next
        if cursor is None:
            return
