"""Pages for reports, storage and the audit. Reports can be downloaded as Markdown and CSV."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import Http404, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse

from fleet.audit import handovers, months, queries, reports
from fleet.audit.charts import count_chart, notice_chart, size_chart
from fleet.audit.months import Counts
from fleet.audit.queries import storage
from fleet.audit.reports import EventReport, event_report, handover, span
from fleet.audit.text import COLUMNS, COUNTS, FILTER_LABELS, FIRST_COLUMNS, month_named
from fleet.dashboard import pages
from fleet.dashboard.events import REPORT_PANELS, UNKNOWN
from fleet.dashboard.export import csv_file, exported, named
from fleet.dashboard.forms import Sent, line
from fleet.dashboard.lanes.timeline import draw_event
from fleet.dashboard.pages import Asked, action_view, done, known, listed, loaded, page, query_with, read_view
from fleet.domain.history import FIRST_YEAR, Month, month_of
from fleet.domain.timeline import EntryKind
from fleet.operations import profile
from fleet.operations.inputs import MomentField
from fleet.projections.events import rows as event_rows
from fleet.projections.events.rows import EventRow
from fleet.projections.filters import EventFilter
from fleet.wording import times
from fleet.wording.events import effect_of
from fleet.wording.say import say
from fleet.wording.timeline import VIAS
from fleet.wording.times import API

# Time spans that the page offers, in hours.
CHOICES = (8, 12, 24, 72)


class SpanForm(forms.Form):
    since = MomentField(required=False)
    until = MomentField(required=False)


class ReadForm(Sent):
    wrong = "Say until when you have read."
    until = MomentField()


class HandoverForm(ReadForm):
    wrong = "The comment may have up to 2,000 characters."
    since = MomentField()
    comment = line()


def _address(since: datetime, until: datetime | None) -> str:
    values = {"since": times.iso(since)} | ({"until": times.iso(until)} if until else {})
    return f"{reverse('handover')}?{urlencode(values)}"


def answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page of the handover between two times. If the address has no times, redirect to one that has, so that
    a shared link shows the same handover.
    """
    form = SpanForm(request.GET)
    form.is_valid()
    since, until = (form.cleaned_data.get(name) for name in ("since", "until"))
    begin, end = span(since=since, until=until, handover_read_until=request.own.handover_read_until, now=request.now)
    if (since is None or until is None) and not form.errors and not context:
        return redirect(_address(begin, end))
    found = handover(since=begin, until=end, now=request.now)
    return page(
        request,
        "history/handover.html",
        found=found,
        sent_handovers=handovers.recent(now=request.now),
        wrong=sorted(form.errors),
        choices=[(hours, _address(request.now - timedelta(hours=hours), None)) for hours in CHOICES],
        own_address=_address(request.own.handover_read_until, None) if request.own.handover_read_until else "",
        newer=_address(begin, None) if request.now - end > timedelta(minutes=1) else "",
        after=_address(end, None) if request.now - end > timedelta(minutes=1) else "",
        **context,
    )


handover_page = read_view("handover/", "handover")(answer)


@action_view("handover/read/", "handover-read", answer)
def read(request: Asked) -> HttpResponse:
    """Record the time up to which the user has read the changes. Their next handover begins there."""
    until = ReadForm(request.POST).values["until"]
    profile.note_read(actor=request.actor, until=until, now=request.now)
    return done(request, "Remembered: your next look begins where this one ends.", "handover")


@action_view("handover/send/", "handover-send", answer)
def send(request: Asked) -> HttpResponse:
    """Send the handover that the page shows to the next shift."""
    values = HandoverForm(request.POST).values
    actor = request.actor.because(values["comment"])
    handovers.send(since=values["since"], until=values["until"], actor=actor, now=request.now)
    there = _address(values["since"], values["until"])
    return done(request, "Sent. The next shift confirms it on this page.", there)


@action_view("handover/<int:handover_id>/confirm/", "handover-confirm", answer)
def confirm(request: Asked, handover_id: int) -> HttpResponse:
    sent = handovers.confirm(handover_id=handover_id, actor=request.actor, now=request.now)
    return done(request, f"You confirmed the handover of {sent.entry.actor}.", "handover")


# Reports of an event for a post-mortem, and of a month: as pages, in print and as files.


@read_view("reports/", "reports")
def report_list(request: Asked) -> HttpResponse:
    """Show the list of months, and the events that ended last."""
    ended = EventFilter({"status": ["ENDED"]}, now=request.now).qs
    return page(
        request,
        "history/reports.html",
        months=[(month, month_named(month)) for month in months.months(now=request.now)],
        events=event_rows.listing(now=request.now, events=ended, size=25).results,
    )


def _event(request: Asked, event_id: str) -> EventReport:
    return known(event_report(event_id=event_id, now=request.now), UNKNOWN)


@read_view("reports/events/<event:event_id>/", "report-event")
def event_page(request: Asked, event_id: str) -> HttpResponse:
    found = _event(request, event_id)
    lanes = draw_event(found.detail, now=request.now)
    panels = loaded(REPORT_PANELS, found.detail.event, request)
    return page(
        request, "history/event.html", report=found, detail=found.detail, lanes=lanes, raw=found.raw, panels=panels
    )


@read_view("reports/events/<event:event_id>/report.md", "report-event-markdown")
def event_markdown(request: Asked, event_id: str) -> HttpResponse:
    report = _event(request, event_id)
    text = render_to_string("history/event_markdown.txt", {"report": report}).strip() + "\n"
    return named(HttpResponse(text, content_type="text/markdown; charset=utf-8"), f"{report.detail.event.event_id}.md")


@read_view("reports/events/<event:event_id>/report.json", "report-event-json")
def event_json(request: Asked, event_id: str) -> HttpResponse:
    found = _event(request, event_id)
    values = {
        "verdict": found.verdict,
        "made_at": found.made_at,
        "event": found.detail,
        "type": effect_of(found.detail.event),
        "local": found.local,
        "timeline": found.timeline,
        "timeline_goes_on": found.more,
        "documents": found.raw.documents,
    }
    answer = JsonResponse(exported(values), json_dumps_params={"indent": 2})
    return named(answer, f"{found.detail.event.event_id}.json")


def _of_address(month: Month, request: Asked) -> Month:
    if month > month_of(request.now):
        raise Http404("This month has not begun.")
    return month


@read_view("reports/<month:month>/", "report-month")
def month_page(request: Asked, month: Month) -> HttpResponse:
    found = months.month_report(month=_of_address(month, request), now=request.now)
    later = month.next if month.next <= month_of(request.now) else None
    earlier = month.previous if month.previous.year >= FIRST_YEAR else None
    return page(
        request,
        "history/month.html",
        report=found,
        title=month_named(month),
        later=later,
        earlier=earlier,
        counted={name: (title, count_chart(name, getattr(found, name))) for name, title in COUNTS.items()},
        notice_chart=notice_chart(found.notice),
    )


@read_view("reports/<month:month>/<slug:table>.csv", "report-month-csv")
def month_csv(request: Asked, month: Month, table: str) -> StreamingHttpResponse:
    """Return one table of a month's report as CSV, with all rows."""
    of = _of_address(month, request)
    if table in ("events", "lapsed"):
        return csv_file(f"{of}-{table}", COLUMNS["events"], _events(request, of, lapsed=table == "lapsed"))
    report = months.month_report(month=of, now=request.now)
    if table in COUNTS:
        counts: Counts = getattr(report, table)
        lines = ((key, *numbers, sum(numbers)) for key, numbers in counts.rows.items())
        return csv_file(f"{of}-{table}", (FIRST_COLUMNS[table], *counts.columns, "total"), lines)
    if table not in COLUMNS:
        raise Http404("A month has no such table.")
    columns = COLUMNS[table]
    by = ("person", "rule")
    rows = ([say(row["by"], API) if name in by else row[name] for name in columns] for row in getattr(report, table))
    return csv_file(f"{of}-{table}", columns, rows)


def _events(request: Asked, month: Month, *, lapsed: bool) -> Iterator[Iterable[Any]]:
    rows = reports.lapsed(months.of_month(month), now=request.now) if lapsed else months.of_month(month)
    return map(_event_cells, months.events_of(rows, now=request.now))


def _iso(at: datetime | None) -> str | None:
    return times.iso(at) if at else None


def _event_cells(row: EventRow) -> Iterable[Any]:
    decision = row.approval
    took = (decision.decided_at - row.first_seen_at).total_seconds() if decision else None
    return (
        row.event_id, row.event_type, row.set.id, row.set.name, " ".join(row.resources), row.source, row.status.value,
        row.ended_as.value if row.ended_as else None, _iso(row.first_seen_at), _iso(row.not_before), row.notice_seconds,
        row.expected_notice_seconds, say(decision.by, API) if decision else None,
        _iso(decision.decided_at) if decision else None, took, decision.state.value if decision else None,
        _iso(decision.accepted_at) if decision else None, _iso(row.started_at), _iso(row.ended_at),
        "yes" if row.approved_elsewhere else "no",
    )  # fmt: skip


# Storage, for administrators: database size and growth, the next partitions to be archived, and the state of the
# archive.


@read_view("storage/", "storage")
@pages.for_admins("Seeing storage needs the right of an admin.")
def storage_page(request: Asked) -> HttpResponse:
    found = storage(now=request.now)
    return page(request, "timeline/storage.html", storage=found, chart=size_chart(found))


# Audit of actions by users and rules, on a page and as files.


@read_view("audit/", "audit")
def audit_page(request: Asked) -> HttpResponse:
    """Show the actions: who did what, by which means, and why. The filters are in the address."""
    filters = queries.AuditFilter(request.GET)
    return listed(
        request,
        "timeline/audit.html",
        "timeline/audit_rows.html",
        partial(queries.listing, entries=filters.qs),
        wrong=[FILTER_LABELS.get(name, name) for name in (filters.errors or {})],
        kinds=sorted(((kind.value, kind.label) for kind in EntryKind), key=lambda pair: pair[1]),
        vias=VIAS,
        export=query_with(request, cursor=""),
        filtered=any(request.GET.get(name) for name in filters.filters),
    )


@read_view("audit/export.csv", "audit-csv")
def audit_csv(request: Asked) -> StreamingHttpResponse:
    lines = queries.csv_lines(queries.AuditFilter(request.GET).qs)
    return named(StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8"), "audit.csv")


@read_view("audit/export.jsonl", "audit-jsonl")
def audit_jsonl(request: Asked) -> StreamingHttpResponse:
    lines = queries.json_lines(queries.AuditFilter(request.GET).qs)
    return named(StreamingHttpResponse(lines, content_type="application/jsonl"), "audit.jsonl")
