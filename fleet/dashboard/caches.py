"""Caches. These pages only read: the notifications are made for programs, and there is nothing to decide."""

from functools import cache, partial
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase

from fleet.dashboard import timelines
from fleet.dashboard.lanes.cache import draw_maintenance
from fleet.dashboard.pages import HISTORY_SIZE, Asked, history, known, listed, page, shown
from fleet.projections import spans
from fleet.projections.caches import maintenances, overview
from fleet.projections.caches.coverage import CacheFilter
from fleet.projections.timeline import entries
from fleet.wording.caches import NO_APPROVAL, TIERS


@shown
def cache_list(request: Asked) -> HttpResponse:
    read = partial(overview.listing, now=request.now, caches=CacheFilter(request.GET).qs)
    return listed(request, "caches/list.html", "caches/cache_rows.html", read, tiers=TIERS, no_approval=NO_APPROVAL)


@shown
def cache_page(request: Asked, cache_id: int) -> HttpResponseBase:
    choice, _ = timelines.service_choice(request, spans.listened_since(cache_id))
    asked = overview.detail(cache_id=cache_id, now=request.now, window=choice.window)
    found = known(asked, "No cache has this number.")
    drawn = cache(lambda: timelines.of_cache(request, choice, found))
    if timelines.wants_file(request):
        return timelines.as_file(request, drawn(), "cache")

    def body() -> dict[str, Any]:
        heard = maintenances.of_cache(cache_id=cache_id, size=HISTORY_SIZE)
        return {"notifications": heard, **drawn().context}

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
        query=timelines.query_of(request),
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
