"""The fleet's timeline; the audit of what people and rules did, on a page and as files."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from fleet.audit import queries as audit_queries
from fleet.dashboard import timelines
from fleet.dashboard.pages import Asked, listed, shown
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from fleet.wording.badges import ENTRY_LOOKS
from fleet.wording.say import recorded
from fleet.wording.timeline import VIAS, kinds_named


@shown
def fleet_timeline(request: Asked) -> HttpResponseBase:
    found = EntryFilter(request.GET).qs
    read = partial(entries.fleet, entries=found)
    drawn = cache(lambda: timelines.of_fleet(request))
    if timelines.wants_file(request):
        return timelines.as_file(request, drawn(), "fleet-timeline")
    # What is about one thing stands as a picture on the page of that.
    whole = not any(request.GET.get(name) for name in EntryFilter.base_filters) and "cursor" not in request.GET
    beside = {"timeline/fleet_picture.html": lambda: drawn().context} if whole else {}
    return listed(request, "timeline/page.html", "timeline/entry_rows.html", read, beside, whole=whole)


@shown
def audit_page(request: Asked) -> HttpResponse:
    """Who did what, through what and why. The filters stand in the address."""
    filters = audit_queries.AuditFilter(request.GET, kinds_named=kinds_named)
    query = request.GET.copy()
    query.pop("cursor", None)
    return listed(
        request,
        "timeline/audit.html",
        "timeline/audit_rows.html",
        partial(audit_queries.listing, entries=filters.qs),
        wrong=[str(filters.filters[name].label) for name in (filters.errors or {})],
        kinds=sorted(((kind.value, look.label) for kind, look in ENTRY_LOOKS.items()), key=lambda pair: pair[1]),
        vias=VIAS,
        export=query.urlencode(),
        filtered=any(request.GET.get(name) for name in filters.filters),
    )


@shown
def audit_csv(request: Asked) -> StreamingHttpResponse:
    return _file(request, partial(audit_queries.csv_lines, text=recorded), "text/csv; charset=utf-8", "audit.csv")


@shown
def audit_jsonl(request: Asked) -> StreamingHttpResponse:
    return _file(request, partial(audit_queries.json_lines, text=recorded), "application/jsonl", "audit.jsonl")


def _file(request: Asked, lines: Callable[[Any], Iterator[str]], kind: str, name: str) -> StreamingHttpResponse:
    """All rows of the page's own filter, made while they are sent."""
    found = audit_queries.AuditFilter(request.GET, kinds_named=kinds_named).qs
    return StreamingHttpResponse(
        lines(found), content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
