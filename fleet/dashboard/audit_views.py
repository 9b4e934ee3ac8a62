"""The audit on a page of its own, and as files."""

from collections.abc import Callable, Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from fleet.dashboard.pages import reader
from fleet.dashboard.views import PAGE_SIZE, asked_again, listed
from fleet.domain.entries import ENTRY_LOOKS
from fleet.projections import audit

VIAS = {"page": "a page", "api": "the API", "rule": "a rule", "command": "the command line"}


@require_safe
@reader
def audit_page(request: HttpRequest) -> HttpResponse:
    """Who did what, through what and why. The filters stand in the address."""
    now = timezone.now()
    filters = audit.AuditFilter(request.GET)

    def rows() -> dict[str, Any]:
        found = audit.listing(entries=filters.qs, cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"entries": found, "links": asked_again(request, found)}

    wrong = [str(filters.filters[name].label) for name in (filters.errors or {})]
    kinds = sorted(((kind.value, look.label) for kind, look in ENTRY_LOOKS.items()), key=lambda pair: pair[1])
    query = request.GET.copy()
    query.pop("cursor", None)
    return listed(
        request,
        "audit.html",
        {"audit_rows": rows},
        now=now,
        wrong=wrong,
        kinds=kinds,
        vias=VIAS,
        export=query.urlencode(),
        filtered=any(request.GET.get(name) for name in filters.filters),
    )


@require_safe
@reader
def audit_csv(request: HttpRequest) -> StreamingHttpResponse:
    return _file(request, audit.csv_lines, "text/csv; charset=utf-8", "audit.csv")


@require_safe
@reader
def audit_jsonl(request: HttpRequest) -> StreamingHttpResponse:
    return _file(request, audit.json_lines, "application/jsonl", "audit.jsonl")


def _file(request: HttpRequest, lines: Callable[[Any], Iterator[str]], kind: str, name: str) -> StreamingHttpResponse:
    """All rows of the page's own filter, made while they are sent."""
    found = audit.AuditFilter(request.GET).qs
    return StreamingHttpResponse(
        lines(found), content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
