"""Reports: on one event, on a month, and for the handover of a shift."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import models
from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from fleet.audit.text import COLUMNS
from fleet.domain import history
from fleet.domain.event_types import NOTICE_TOLERANCE_SECONDS, expected_notice
from fleet.domain.history import DECISIONS, Decided, Happened, Month
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.domain.states import ApprovalState, EndedAs
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Claim, Entry, Hold, Machine, ScheduledEvent
from fleet.models.facts.events import decider, hold_reason, name_of
from fleet.models.timeline import ACTING
from fleet.projections import intake
from fleet.projections.events.detail import EventDetail, event_detail
from fleet.projections.events.rows import OPEN, EventRow, event_rows
from fleet.projections.intake import EventDocuments
from fleet.projections.pages import MAX_PAGE_SIZE, Page, Segment, read_page
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
    return EventReport(
        verdict=_verdict(detail, local),
        detail=detail,
        local=local,
        timeline=story.results,
        more=story.next is not None,
        raw=raw,
        made_at=now,
    )


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

    name: str
    rows: tuple[TimelineRow, ...]
    more: bool
    kinds: tuple[EntryKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """Handover of a shift. `parts` are the sections in reading order. `still_open` are all events that are open now,
    least time left first.
    """

    since: datetime
    until: datetime
    parts: tuple[Part, ...]
    still_open: tuple[EventRow, ...]
    more_open: bool
    server_time: datetime


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
    """Return the handover with the entries from `since` until just before `until`. Ten queries, and one for the names
    in each section.
    """
    within = visible(Entry).filter(at__gte=since, at__lt=until)
    acts = within.filter(via__in=ACTING)
    not_of_desk = [kind.value for kind in (*DECISIONS, *history.STARTED)]
    waiting = visible(ScheduledEvent).filter(status__in=OPEN).select_related("availability_set")
    events = list(waiting.order_by("not_before", "pk")[: MAX_HANDOVER_ROWS + 1])
    return Handover(
        since=since,
        until=until,
        parts=(
            _part("decided", acts, DECISIONS),
            *(_part(name, within, kinds) for name, kinds in MILESTONES.items()),
            _part("desk", acts.exclude(kind__in=not_of_desk)),
        ),
        still_open=event_rows(events[:MAX_HANDOVER_ROWS], now=now),
        more_open=len(events) > MAX_HANDOVER_ROWS,
        server_time=now,
    )


def _part(name: str, rows: QuerySet[Entry], kinds: tuple[EntryKind, ...] = ()) -> Part:
    found = fleet(
        entries=rows.filter(kind__in=[kind.value for kind in kinds]) if kinds else rows, size=MAX_HANDOVER_ROWS
    )
    return Part(name, found.results, more=found.next is not None, kinds=kinds)


# Report of a month: notice given, decision times, lapsed events, and actions of rules.

# Rows of a table on the page; its file contains all.
MAX_MONTH_ROWS = 100
# Months that the list reaches back.
MONTHS = 60


class Median(models.Aggregate):
    """SQL aggregate for the median. None if there are no values. It needs an `output_field`."""

    template = "percentile_cont(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"


@dataclass(frozen=True, slots=True)
class MonthReport:
    """Report on a month. Drills count only in `drills`. `lapsed` are events without a decision before NotBefore, or
    whose approval was too late or refused; at most 100. `ended` counts events by how they ended.

    Rows of `notice`, `people` and `rules` have the columns of their files (`fleet.audit.text.COLUMNS`). Instead of a
    name, `people` and `rules` have `by`, and `rule_id`, which is None for users. Their times are seconds from the first
    sighting to the decision, None without an approval.
    """

    month: Month
    events: int
    drills: int
    still_open: int
    ended: Mapping[str, int]
    elsewhere: int
    notice: tuple[Row, ...]
    people: tuple[Row, ...]
    rules: tuple[Row, ...]
    lapsed: tuple[EventRow, ...]
    lapsed_count: int
    made_at: datetime = field(compare=False)

    @property
    def over(self) -> bool:
        return self.month.end <= self.made_at


def months(*, now: datetime) -> tuple[Month, ...]:
    """Return the months for which there is a report, newest first. One query."""
    first = visible(ScheduledEvent).order_by("first_seen_at", "pk").values_list("first_seen_at", flat=True).first()
    return history.months_back(first, now=now, most=MONTHS)


def of_month(month: Month) -> QuerySet[ScheduledEvent]:
    """Return the events that were first seen in this month, without drills."""
    rows = visible(ScheduledEvent).filter(first_seen_at__gte=month.begin, first_seen_at__lt=month.end)
    return rows.filter(drill=False)


def month_report(*, month: Month, now: datetime) -> MonthReport:
    """Return the report on a month. Nine queries, and two more if an event lapsed."""
    rows = of_month(month)
    counted = rows.aggregate(
        events=Count("pk"),
        still_open=Count("pk", filter=~Q(status="ENDED")),
        elsewhere=Count("pk", filter=Q(approved_elsewhere=True)),
        **{how.value: Count("pk", filter=Q(status="ENDED", ended_as=how.value)) for how in EndedAs},
    )
    drills = visible(ScheduledEvent).filter(first_seen_at__gte=month.begin, first_seen_at__lt=month.end, drill=True)
    late = lapsed(month, now=now)
    deciders = _deciders(rows)
    return MonthReport(
        month=month,
        events=counted["events"],
        drills=drills.count(),
        still_open=counted["still_open"],
        ended={how.value: counted[how.value] for how in EndedAs if counted[how.value]},
        elsewhere=counted["elsewhere"],
        notice=_notice(rows),
        people=tuple(row for row in deciders if row["rule_id"] is None),
        rules=tuple(row for row in deciders if row["rule_id"] is not None),
        lapsed=event_rows(
            list(late.select_related("availability_set").order_by("first_seen_at", "pk")[:MAX_MONTH_ROWS]), now=now
        ),
        lapsed_count=late.count(),
        made_at=now,
    )


def lapsed(month: Month, *, now: datetime) -> QuerySet[ScheduledEvent]:
    """Return the events of a month that Azure was free to start before a decision from Drydock reached it."""
    approvals = visible(Approval).filter(event=OuterRef("pk"))
    decided = approvals.exclude(state__in=["LAPSED", "REFUSED", "WITHDRAWN"])
    held = visible(Hold).filter(event=OuterRef("pk"), by__isnull=False)
    # Events that ended before NotBefore needed no decision.
    gone = Q(ended_at__isnull=False, ended_at__lt=F("not_before"))
    behind = of_month(month).filter(not_before__lte=now, approved_elsewhere=False).exclude(gone)
    late = approvals.filter(state__in=["LAPSED", "REFUSED"])
    return behind.filter(~Exists(decided) & (Exists(late) | ~Exists(held)))


def _expected(rows: QuerySet[ScheduledEvent]) -> models.Case:
    """Return the query expression for the notice to expect of each event, in seconds; NULL if unknown. One query."""
    configured = "availability_set__terminate_notice_seconds"
    pairs = rows.order_by().values_list("event_type", configured).distinct()
    return models.Case(
        *[
            models.When(**{"event_type": event_type, configured: seconds}, then=Value(expected))
            for event_type, seconds in pairs
            if (expected := expected_notice(event_type, seconds)) is not None
        ],
        default=Value(None),
        output_field=models.IntegerField(),
    )


def _notice(rows: QuerySet[ScheduledEvent]) -> tuple[Row, ...]:
    """Return the notice that Azure gave for each event type, region (empty if unknown) and expected notice."""
    located = visible(Machine, every=True).filter(availability_set=OuterRef("availability_set")).exclude(region="")
    region = Coalesce(
        models.Subquery(located.order_by("pk").values("region")[:1]), Value(""), output_field=models.TextField()
    )
    grouped = (
        rows.annotate(region=region, expected_notice_seconds=_expected(rows))
        .values("event_type", "region", "expected_notice_seconds")
        .annotate(
            events=Count("pk"),
            least_seconds=models.Min("notice_seconds"),
            median_seconds=Median("notice_seconds", output_field=models.FloatField()),
            most_seconds=Max("notice_seconds"),
            shorter_than_expected=Count(
                "pk", filter=Q(notice_seconds__lt=F("expected_notice_seconds") - NOTICE_TOLERANCE_SECONDS)
            ),
            without_notice=Count("pk", filter=Q(notice_seconds=None)),
        )
    )
    return tuple(grouped.order_by("event_type", "region", "expected_notice_seconds"))


def _deciders(rows: QuerySet[ScheduledEvent]) -> tuple[Row, ...]:
    """Return all users and rules that decided an event, those with most decisions first."""
    took = models.ExpressionWrapper(F("decided_at") - F("event__first_seen_at"), models.DurationField())
    states = ("CONFIRMED", "LAPSED", "REFUSED", "WITHDRAWN")
    who = ("rule", "rule__name", "decided_by__username")
    approved = (
        visible(Approval)
        .filter(event__in=rows)
        .annotate(took=took)
        .values(*who)
        .annotate(
            approvals=Count("pk"),
            median_seconds_to_decision=Median("took", output_field=models.DurationField()),
            slowest_seconds_to_decision=Max("took"),
            **{state.lower(): Count("pk", filter=Q(state=ApprovalState[state].value)) for state in states},
        )
        .order_by(*who)
    )
    columns = COLUMNS["people"][1:]
    none = {name: None if "seconds" in name else 0 for name in columns}
    deciders: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(lambda: dict(none))
    for row in approved:
        key = tuple(row.pop(name) for name in who)
        deciders[key] |= {
            name: max(0.0, value.total_seconds()) if isinstance(value, timedelta) else value
            for name, value in row.items()
        }
    held = visible(Hold).filter(event__in=rows).values_list("rule", "rule__name", "by__username")
    for rule, name, person, count in held.annotate(left=Count("pk")).order_by("rule", "by__username"):
        deciders[rule, name, person]["left_to_azure"] = count
    shaped = [
        {"by": name if rule is not None else decider(person, None), "rule_id": rule, **row}
        for (rule, name, person), row in deciders.items()
    ]
    return tuple(sorted(shaped, key=lambda row: (-row["approvals"] - row["left_to_azure"], str(row["by"]))))


def events_of(rows: QuerySet[ScheduledEvent], *, now: datetime) -> Iterator[EventRow]:
    """Yield all events of a month, oldest first, page by page."""
    segment = Segment(rows.select_related("availability_set"), "first_seen_at")
    for page in every_page(partial(read_page, [segment])):
        yield from event_rows(page, now=now)


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
