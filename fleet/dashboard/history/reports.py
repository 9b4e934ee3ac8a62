"""Reports: of an event for a post-mortem, and of a month; to read, to print and as files."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from django.http import Http404, HttpResponse, JsonResponse, StreamingHttpResponse

from fleet.dashboard.events import UNKNOWN
from fleet.dashboard.export import exported
from fleet.dashboard.history.markdown import written
from fleet.dashboard.lanes.event import draw_event
from fleet.dashboard.pages import Asked, known, page, shown
from fleet.domain.history import FIRST_YEAR, Month, month_of
from fleet.projections.events import rows as event_rows
from fleet.projections.events.rows import EventRow
from fleet.projections.filters import EventFilter
from fleet.projections.history import month as months
from fleet.projections.history.event import EventReport, event_report
from fleet.projections.history.month import DeciderRow, NoticeRow
from fleet.projections.messages.told import told_of
from fleet.projections.timeline.audit import defused
from fleet.wording import times
from fleet.wording.events import TYPES, effect_of
from fleet.wording.history import COLUMNS, month_named
from fleet.wording.reader import API
from fleet.wording.say import say

A = TypeVar("A", HttpResponse, StreamingHttpResponse)
DOCUMENTED = {name: words.documented_notice_seconds for name, words in TYPES.items()}


@shown
def report_list(request: Asked) -> HttpResponse:
    """The months, and the events that ended last."""
    ended = EventFilter({"status": ["ENDED"]}, now=request.now).qs
    return page(
        request,
        "history/reports.html",
        months=[(month, month_named(month)) for month in months.months(now=request.now)],
        events=event_rows.listing(now=request.now, events=ended, size=25).results,
    )


def _event(request: Asked, event_id: str) -> EventReport:
    return known(event_report(event_id=event_id, now=request.now), UNKNOWN)


@shown
def event_page(request: Asked, event_id: str) -> HttpResponse:
    found = _event(request, event_id)
    lanes = draw_event(found.detail, now=request.now)
    told = told_of(found.detail.event.id, user_id=request.user.pk, now=request.now)
    return page(
        request, "history/event.html", report=found, detail=found.detail, lanes=lanes, raw=found.raw, outgoing=told
    )


@shown
def event_markdown(request: Asked, event_id: str) -> HttpResponse:
    found = _event(request, event_id)
    answer = HttpResponse(written(found), content_type="text/markdown; charset=utf-8")
    return _named(answer, f"{found.detail.event.event_id}.md")


@shown
def event_json(request: Asked, event_id: str) -> HttpResponse:
    found = _event(request, event_id)
    told = {
        "verdict": found.verdict,
        "made_at": found.made_at,
        "event": found.detail,
        "type": effect_of(found.detail.event),
        "local": found.local,
        "timeline": found.timeline,
        "timeline_goes_on": found.more,
        "documents": found.raw.documents,
    }
    answer = JsonResponse(exported(told), json_dumps_params={"indent": 2})
    return _named(answer, f"{found.detail.event.event_id}.json")


def _of_address(month: Month, request: Asked) -> Month:
    if month > month_of(request.now):
        raise Http404("This month has not begun.")
    return month


@shown
def month_page(request: Asked, month: Month) -> HttpResponse:
    found = months.month_report(month=_of_address(month, request), documented=DOCUMENTED, now=request.now)
    later = month.next if month.next <= month_of(request.now) else None
    earlier = month.previous if month.previous.year >= FIRST_YEAR else None
    return page(request, "history/month.html", report=found, title=month_named(month), later=later, earlier=earlier)


@shown
def month_csv(request: Asked, month: Month, table: str) -> StreamingHttpResponse:
    """One table of the month, all of it."""
    of = _of_address(month, request)
    if table not in TABLES:
        raise Http404("A month has no such table.")
    lines = _lines(COLUMNS["events" if table == "lapsed" else table], TABLES[table](request, of))
    answer = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    return _named(answer, f"{of}-{table}.csv")


def _named(answer: A, name: str) -> A:
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _lines(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Line by line with a head. No cell is a formula."""
    yield _line(columns)
    for row in rows:
        yield _line(row)


def _line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(["" if cell is None else defused(str(cell)) for cell in cells])
    return buffer.getvalue()


def _events(request: Asked, month: Month) -> Iterator[Iterable[Any]]:
    return map(_event_cells, months.events_of(months.of_month(month), now=request.now))


def _lapsed(request: Asked, month: Month) -> Iterator[Iterable[Any]]:
    return map(_event_cells, months.events_of(months.lapsed(month, now=request.now), now=request.now))


def _iso(at: datetime | None) -> str | None:
    return times.iso(at) if at else None


def _event_cells(row: EventRow) -> Iterable[Any]:
    decision = row.approval
    took = (decision.decided_at - row.first_seen_at).total_seconds() if decision else None
    return (
        row.event_id, row.event_type, row.set.id, row.set.name, " ".join(row.resources), row.source, row.status.value,
        row.ended_as.value if row.ended_as else None, _iso(row.first_seen_at), _iso(row.not_before), row.notice_seconds,
        DOCUMENTED.get(row.event_type), say(decision.by, API) if decision else None,
        _iso(decision.decided_at) if decision else None, took, decision.state.value if decision else None,
        _iso(decision.accepted_at) if decision else None, _iso(row.started_at), _iso(row.ended_at),
        "yes" if row.approved_elsewhere else "no",
    )  # fmt: skip


def _notice_cells(row: NoticeRow) -> Iterable[Any]:
    return (
        row.event_type, row.region, row.events, row.documented, row.least, row.median, row.most, row.short, row.none
    )  # fmt: skip


def _decider_cells(row: DeciderRow) -> Iterable[Any]:
    return (
        say(row.by, API), row.approvals, row.median_seconds, row.slowest_seconds, row.confirmed, row.lapsed,
        row.refused, row.withdrawn, row.left,
    )  # fmt: skip


def _part(name: str, cells: Callable[[Any], Iterable[Any]], request: Asked, month: Month) -> Iterator[Iterable[Any]]:
    report = months.month_report(month=month, documented=DOCUMENTED, now=request.now)
    return map(cells, getattr(report, name))


TABLES: dict[str, Callable[[Asked, Month], Iterator[Iterable[Any]]]] = {
    "events": _events,
    "lapsed": _lapsed,
    "notice": partial(_part, "notice", _notice_cells),
    "people": partial(_part, "people", _decider_cells),
    "rules": partial(_part, "rules", _decider_cells),
}
