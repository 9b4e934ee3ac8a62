"""Caches. These pages only read: the notifications are made for programs, and there is nothing to decide."""

from functools import partial
from typing import Any

from django.http import HttpResponse

from fleet.dashboard.lanes.cache import draw_cache, draw_maintenance
from fleet.dashboard.pages import HISTORY_SIZE, Asked, history, known, listed, page, shown
from fleet.projections.caches import maintenances, overview
from fleet.projections.filters import CacheFilter
from fleet.projections.timeline import entries
from fleet.wording.caches import NO_APPROVAL, TIERS
from fleet.wording.times import duration

# What the picture of a cache may span, in hours.
SPANS = {str(hours): duration(hours * 3600) for hours in (1, 6, 24, 168)}


@shown
def cache_list(request: Asked) -> HttpResponse:
    read = partial(overview.listing, now=request.now, caches=CacheFilter(request.GET).qs)
    return listed(request, "caches/list.html", "caches/cache_rows.html", read, tiers=TIERS, no_approval=NO_APPROVAL)


@shown
def cache_page(request: Asked, cache_id: int) -> HttpResponse:
    hours = request.GET.get("hours", "24")
    hours = hours if hours in SPANS else "24"
    found = known(overview.detail(cache_id=cache_id, now=request.now, hours=float(hours)), "No cache has this number.")

    def body() -> dict[str, Any]:
        heard = maintenances.of_cache(cache_id=cache_id, size=HISTORY_SIZE)
        return {"lanes": draw_cache(found), "notifications": heard}

    return page(
        request,
        "caches/page.html",
        {
            "caches/cache_body.html": body,
            "caches/cache_history.html": lambda: history(
                entries.for_cache(cache_id=cache_id, cursor=None, size=HISTORY_SIZE), cache=cache_id
            ),
        },
        detail=found,
        hours=hours,
        query=f"hours={hours}",
        spans=SPANS,
        no_approval=NO_APPROVAL,
    )


@shown
def maintenance_page(request: Asked, maintenance_id: int) -> HttpResponse:
    found = known(
        maintenances.detail(maintenance_id=maintenance_id, now=request.now), "No maintenance has this number."
    )
    return page(
        request,
        "caches/maintenance.html",
        {"caches/maintenance_body.html": lambda: {"lanes": draw_maintenance(found)}},
        detail=found,
        no_approval=NO_APPROVAL,
    )
