"""Pages of caches, which are read-only, because notifications are meant for programs and need no decision; and of
services.
"""

from functools import cache, partial
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase

from fleet.dashboard import timeline
from fleet.dashboard.fleet_map import PLACES, ROOM, draw_cells
from fleet.dashboard.lanes.picture import Interval
from fleet.dashboard.lanes.timeline import draw_maintenance
from fleet.dashboard.pages import HISTORY_SIZE, Asked, action_view, done, history, known, listed, page, read_view
from fleet.dashboard.tags import service_url
from fleet.operations.sets import changes
from fleet.operations.sets.changes import ServiceForm
from fleet.projections import spans
from fleet.projections.caches import maintenances, overview
from fleet.projections.caches.coverage import CacheFilter
from fleet.projections.desk import service
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from fleet.wording.caches import NO_APPROVAL, TIERS
from fleet.wording.say import say
from fleet.wording.times import page_reader


@read_view("caches/", "caches")
def cache_list(request: Asked) -> HttpResponse:
    read = partial(overview.listing, now=request.now, caches=CacheFilter(request.GET).qs)
    return listed(request, "caches/list.html", "caches/cache_rows.html", read, tiers=TIERS, no_approval=NO_APPROVAL)


@read_view("caches/<int:cache_id>/", "cache")
def cache_page(request: Asked, cache_id: int) -> HttpResponseBase:
    choice, _ = timeline.requested(request, spans.listened_since(cache_id))
    detail = overview.detail(cache_id=cache_id, now=request.now, window=choice.window)
    found = known(detail, "No cache has this number.")
    drawn = cache(lambda: timeline.of_cache(request, choice, found))
    if timeline.wants_file(request):
        return timeline.as_file(request, drawn(), "cache")

    def body() -> dict[str, Any]:
        heard = maintenances.of_cache(cache_id=cache_id, size=HISTORY_SIZE)
        return {"notifications": heard, **drawn()}

    return page(
        request,
        "caches/page.html",
        {
            "caches/cache_body.html": body,
            "caches/cache_history.html": lambda: history(partial(entries.for_cache, cache_id=cache_id), cache=cache_id),
        },
        detail=found,
        query=timeline.query_of(request),
        no_approval=NO_APPROVAL,
    )


@read_view("maintenances/<int:maintenance_id>/", "maintenance")
def maintenance_page(request: Asked, maintenance_id: int) -> HttpResponse:
    detail = maintenances.detail(maintenance_id=maintenance_id, now=request.now)
    found = known(detail, "No maintenance has this number.")
    return page(
        request,
        "caches/maintenance.html",
        {"caches/maintenance_body.html": lambda: {"lanes": draw_maintenance(found)}},
        detail=found,
        no_approval=NO_APPROVAL,
    )


# A service: its sets and caches, and overlaps of their events and maintenances.


def service_answer(request: Asked, /, name: str = "", **context: Any) -> HttpResponseBase:
    """Return the page of a service. Names that a URL path cannot contain, such as dots alone, are passed as `?name=`,
    and by the form of its runbook as `name`.
    """
    name = name or request.GET.get("name", "") or request.POST.get("name", "").replace("\x00", "")
    found = known(service.detail(service=name, now=request.now) if name else None, "No service has this name.")

    @cache
    def seen() -> tuple[dict[str, Any], list[service.MeetingRow]]:
        since = spans.enrolled_since(availability_set__service__iexact=found.name)
        choice, types = timeline.requested(request, since)
        read = spans.of_service(found.name, choice.window, types=types, now=request.now)
        meet = service.meetings_of(read, now=request.now)
        bands = [Interval(row.begin, row.end, "", say(row.text, page_reader(request.now))) for row in meet]
        return timeline.of_service(request, read, choice, bands), meet

    if timeline.wants_file(request):
        return timeline.as_file(request, seen()[0], "service")

    def body() -> dict[str, Any]:
        named = found.group.size < PLACES
        few = found.group.worst_first(ROOM)
        cells, (picture, meetings) = draw_cells(few, page_reader(request.now), named=named), seen()
        more = found.group.size - few.size
        return {"cells": cells, "more": more, "named": named, "meetings": meetings, **picture}

    def story() -> dict[str, Any]:
        rows = entries.without_sightings(EntryFilter({"service": found.name}).qs)
        return history(partial(entries.fleet, entries=rows), service=found.name)

    return page(
        request,
        "desk/service.html",
        {"desk/service_body.html": body, "desk/service_history.html": story},
        detail=found,
        here=service_url(found.name).partition("?")[0],
        query=timeline.query_of(request),
        **context,
    )


service_page = read_view("services/", "service")(service_answer)


@action_view("service-runbook/", "service-runbook", service_answer)
def set_runbook(request: Asked) -> HttpResponseBase:
    name = request.POST.get("name", "").replace("\x00", "")
    changes.change_service(ServiceForm(request.POST), service=name, actor=request.actor, now=request.now)
    return done(request, "Runbook saved.", service_url(name))
