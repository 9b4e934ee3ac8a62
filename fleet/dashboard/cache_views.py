"""Pages about caches. They read; there is nothing to decide: these notifications are made for programs."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from fleet.dashboard.cache_lanes import draw_cache, draw_maintenance
from fleet.dashboard.pages import missing, page, reader
from fleet.dashboard.views import HISTORY_SIZE, PAGE_SIZE, asked_again, listed
from fleet.domain.redis_words import NO_APPROVAL, TIERS
from fleet.projections import caches, maintenances, timeline
from fleet.projections.filters import CacheFilter

# What the picture of a cache may span, in hours.
SPANS = {"1": "1 h", "6": "6 h", "24": "24 h", "168": "7 d"}


@require_safe
@reader
def cache_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    filters = CacheFilter(request.GET)

    def rows() -> dict[str, Any]:
        found = caches.listing(now=now, caches=filters.qs, cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"caches": found, "links": asked_again(request, found)}

    return listed(
        request, "caches.html", {"cache_rows": rows}, now=now, filters=filters, tiers=TIERS, no_approval=NO_APPROVAL
    )


@require_safe
@reader
def cache_page(request: HttpRequest, cache_id: int) -> HttpResponse:
    now = timezone.now()
    hours = request.GET.get("hours", "24")
    hours = hours if hours in SPANS else "24"
    found = caches.detail(cache_id=cache_id, now=now, hours=float(hours))
    if found is None:
        return missing(request, "There is no such cache.")

    def body() -> dict[str, Any]:
        heard = maintenances.of_cache(cache_id=cache_id, size=HISTORY_SIZE)
        return {"detail": found, "lanes": draw_cache(found), "notifications": heard}

    def history() -> dict[str, Any]:
        rows = timeline.for_cache(cache_id=cache_id, cursor=None, size=HISTORY_SIZE)
        return {"entries": rows, "more": f"cache={cache_id}" if rows.next else ""}

    return page(
        request,
        "cache.html",
        {"cache_body": body, "cache_history": history},
        now=now,
        detail=found,
        hours=hours,
        spans=SPANS,
        no_approval=NO_APPROVAL,
    )


@require_safe
@reader
def maintenance_page(request: HttpRequest, maintenance_id: int) -> HttpResponse:
    now = timezone.now()
    found = maintenances.detail(maintenance_id=maintenance_id, now=now)
    if found is None:
        return missing(request, "There is no such maintenance of a cache.")
    return page(
        request,
        "maintenance.html",
        {"maintenance_body": lambda: {"lanes": draw_maintenance(found)}},
        now=now,
        detail=found,
        no_approval=NO_APPROVAL,
    )
