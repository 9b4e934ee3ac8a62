"""Report of a month: events by day, notice given, times to a decision, decisions and outcomes, lapsed events."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from django.db import models
from django.db.models import Case, Count, Exists, F, Max, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, TruncDate

from fleet.audit.reports import every_page, lapsed
from fleet.audit.text import DECIDER_COLUMNS
from fleet.domain import history
from fleet.domain.event_types import ADVICE_TYPES, NOTICE_TOLERANCE_SECONDS, TYPES, expected_notice
from fleet.domain.history import Month
from fleet.domain.states import ApprovalState, EndedAs
from fleet.models import Approval, Hold, Machine, ScheduledEvent
from fleet.models.facts.events import decider
from fleet.projections.events.rows import EventRow, event_rows
from fleet.projections.pages import Segment, read_page
from fleet.projections.visibility import visible

Row = Mapping[str, Any]
# Rows of a table on the page; its file contains all.
MAX_MONTH_ROWS = 100
# Months that the list reaches back.
MONTHS = 60
DAY = timedelta(days=1)
# Codes of counts that are not a type of event, an outcome or a decider.
OTHER_TYPE, STILL_OPEN, UNDECIDED = "other", "open", "undecided"
# Where the classes of times to a decision begin, in seconds.
DECISION_SECONDS = (0, 10, 30, 60, 120, 300, 600, 900, 3600)


class Median(models.Aggregate):
    """SQL aggregate for the median. None if there are no values. It needs an `output_field`."""

    template = "percentile_cont(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers by two values: for each key of `rows` one number for each of `columns`. Both are codes."""

    columns: tuple[str, ...]
    rows: Mapping[str, tuple[int, ...]]

    @property
    def total(self) -> int:
        return sum(map(sum, self.rows.values()))


@dataclass(frozen=True, slots=True)
class MonthReport:
    """Report on a month. Drills count only in `drills`. `lapsed` are events without a decision before NotBefore, or
    whose approval was too late or refused; at most 100.

    `days` counts events by day and type, `decisions` by who decided and how they ended. `times` counts approvals by the
    seconds from the first sighting to the decision (a key of `DECISION_SECONDS`), for users and for rules.

    Rows of `notice`, `people` and `rules` have the columns of their files (`fleet.audit.text.COLUMNS`). Instead of a
    name, `people` and `rules` have `by`, and `rule_id`, which is None for users. Their times are seconds from the first
    sighting to the decision, None without an approval.
    """

    month: Month
    drills: int
    days: Counts
    times: Counts
    decisions: Counts
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


def of_month(month: Month, *, drill: bool = False) -> QuerySet[ScheduledEvent]:
    """Return the events that were first seen in this month: without drills, or the drills."""
    rows = visible(ScheduledEvent).filter(first_seen_at__gte=month.begin, first_seen_at__lt=month.end)
    return rows.filter(drill=drill)


def month_report(*, month: Month, now: datetime) -> MonthReport:
    """Return the report on a month. Ten queries, and two more if an event lapsed."""
    rows = of_month(month)
    late = lapsed(of_month(month), now=now)
    first_late = late.select_related("availability_set").order_by("first_seen_at", "pk")
    deciders = _deciders(rows)
    return MonthReport(
        month=month,
        drills=of_month(month, drill=True).count(),
        days=_days(month, now=now),
        times=_times(rows),
        decisions=_decisions(rows),
        notice=_notice(rows),
        people=tuple(row for row in deciders if row["rule_id"] is None),
        rules=tuple(row for row in deciders if row["rule_id"] is not None),
        lapsed=event_rows(list(first_late[:MAX_MONTH_ROWS]), now=now),
        lapsed_count=late.count(),
        made_at=now,
    )


# Each table of counts is one query that returns few rows, however many events a month has.


def _days(month: Month, *, now: datetime) -> Counts:
    """Count the events of each day of the month until now (in UTC) by documented type."""
    known = (*TYPES, *ADVICE_TYPES)
    kind = Case(
        When(event_type__in=known, then=F("event_type")), default=Value(OTHER_TYPE), output_field=models.TextField()
    )
    days = (min(month.end, now + DAY).date() - month.begin.date()).days
    found = of_month(month).annotate(day=TruncDate("first_seen_at", tzinfo=UTC), kind=kind).order_by()
    keys = [f"{month}-{day + 1:02d}" for day in range(max(days, 1))]
    return _counts(found.values_list("day", "kind").annotate(Count("pk")), keys, (*known, OTHER_TYPE))


def _decisions(rows: QuerySet[ScheduledEvent]) -> Counts:
    """Count events by who decided them and how they ended."""
    approvals = visible(Approval).filter(event=OuterRef("pk")).exclude(state=ApprovalState.WITHDRAWN.value)
    holds = visible(Hold).filter(event=OuterRef("pk"))
    deciders: dict[str, Q | Exists] = {
        "elsewhere": Q(approved_elsewhere=True),
        "user-approved": Exists(approvals.filter(rule=None)),
        "rule-approved": Exists(approvals),
        "user-left": Exists(holds.filter(rule=None)),
        "rule-left": Exists(holds),
    }
    outcome = Case(
        When(~Q(status="ENDED"), then=Value(STILL_OPEN)),
        When(ended_as="", then=Value(EndedAs.UNKNOWN.value)),
        default=F("ended_as"),
        output_field=models.TextField(),
    )
    whens = [When(condition, then=Value(code)) for code, condition in deciders.items()]
    found = rows.annotate(decider=Case(*whens, default=Value(UNDECIDED)), outcome=outcome).order_by()
    grouped = found.values_list("decider", "outcome").annotate(Count("pk"))
    return _counts(grouped, (*deciders, UNDECIDED), (*(how.value for how in EndedAs), STILL_OPEN))


def _times(rows: QuerySet[ScheduledEvent]) -> Counts:
    """Count the approvals of these events by the time to the decision."""
    classes = pairwise(DECISION_SECONDS)
    whens = [When(took__lt=timedelta(seconds=end), then=Value(str(begin))) for begin, end in classes]
    found = _approvals(rows).annotate(
        seconds=Case(*whens, default=Value(str(DECISION_SECONDS[-1]))),
        by=Case(When(rule=None, then=Value("users")), default=Value("rules")),
    )
    grouped = found.values_list("seconds", "by").annotate(Count("pk")).order_by()
    return _counts(grouped, map(str, DECISION_SECONDS), ("users", "rules"))


def _counts(found: Iterable[tuple[Any, ...]], keys: Iterable[str], columns: tuple[str, ...]) -> Counts:
    """Return the counts with a row for each key. `found` are a key, a column, and their number."""
    numbers = {(str(key), column): number for key, column, number in found}
    return Counts(columns, {key: tuple(numbers.get((key, column), 0) for column in columns) for key in keys})


def _expected(rows: QuerySet[ScheduledEvent]) -> Case:
    """Return the query expression for the notice to expect of each event, in seconds; NULL if unknown. One query."""
    configured = "availability_set__terminate_notice_seconds"
    pairs = rows.order_by().values_list("event_type", configured).distinct()
    whens = [
        When(**{"event_type": event_type, configured: seconds}, then=Value(expected))
        for event_type, seconds in pairs
        if (expected := expected_notice(event_type, seconds)) is not None
    ]
    return Case(*whens, default=Value(None), output_field=models.IntegerField())


def _notice(rows: QuerySet[ScheduledEvent]) -> tuple[Row, ...]:
    """Return the notice that Azure gave for each event type, region (empty if unknown) and expected notice."""
    located = visible(Machine, every=True).filter(availability_set=OuterRef("availability_set")).exclude(region="")
    region = Coalesce(
        models.Subquery(located.order_by("pk").values("region")[:1]), Value(""), output_field=models.TextField()
    )
    shorter = Q(notice_seconds__lt=F("expected_notice_seconds") - NOTICE_TOLERANCE_SECONDS)
    by = ("event_type", "region", "expected_notice_seconds")
    grouped = rows.annotate(region=region, expected_notice_seconds=_expected(rows)).values(*by).order_by(*by)
    return tuple(
        grouped.annotate(
            events=Count("pk"),
            least_seconds=models.Min("notice_seconds"),
            median_seconds=Median("notice_seconds", output_field=models.FloatField()),
            most_seconds=Max("notice_seconds"),
            shorter_than_expected=Count("pk", filter=shorter),
            without_notice=Count("pk", filter=Q(notice_seconds=None)),
        )
    )


def _approvals(rows: QuerySet[ScheduledEvent]) -> QuerySet[Approval]:
    """Return the approvals of these events, with the time from the first sighting to the decision as `took`."""
    took = models.ExpressionWrapper(F("decided_at") - F("event__first_seen_at"), models.DurationField())
    return visible(Approval).filter(event__in=rows).annotate(took=took)


def _deciders(rows: QuerySet[ScheduledEvent]) -> tuple[Row, ...]:
    """Return all users and rules that decided an event, those with most decisions first."""
    states = ("CONFIRMED", "LAPSED", "REFUSED", "WITHDRAWN")
    who = ("rule", "rule__name", "decided_by__username")
    approved = _approvals(rows).values(*who).order_by(*who)
    approved = approved.annotate(
        approvals=Count("pk"),
        median_seconds_to_decision=Median("took", output_field=models.DurationField()),
        slowest_seconds_to_decision=Max("took"),
        **{state.lower(): Count("pk", filter=Q(state=ApprovalState[state].value)) for state in states},
    )
    none = {name: None if "seconds" in name else 0 for name in DECIDER_COLUMNS}
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
