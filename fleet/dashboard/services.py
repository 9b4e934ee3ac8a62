"""A service: its sets and caches, and where what happens to them meets."""

from functools import cache
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase

from fleet.dashboard import timelines
from fleet.dashboard.fleet_map import NAMED, ROOM, draw_cells
from fleet.dashboard.lanes.shapes import Band
from fleet.dashboard.pages import HISTORY_SIZE, Asked, history, known, page, shown
from fleet.dashboard.tags.words import service_url
from fleet.projections import spans
from fleet.projections.desk import service
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from fleet.wording.say import say
from fleet.wording.times import page_reader


@shown
def service_page(request: Asked, name: str = "") -> HttpResponseBase:
    """`?name=` where a name makes no address, such as one of dots."""
    asked = name or request.GET.get("name", "")
    found = known(service.detail(service=asked, now=request.now) if asked else None, "No service has this name.")

    @cache
    def seen() -> tuple[timelines.TimelinePart, tuple[service.MeetingRow, ...]]:
        since = spans.enrolled_since(availability_set__service__iexact=found.name)
        choice, types = timelines.service_choice(request, since)
        read = spans.of_service(found.name, choice.window, types=types, now=request.now)
        meet = service.meetings_of(read, now=request.now)
        bands = [Band(row.begin, row.end, say(row.text, page_reader(request.now))) for row in meet]
        return timelines.of_service(request, found.name, read, choice, bands), meet

    if timelines.wants_file(request):
        return timelines.as_file(request, seen()[0], "service")

    def body() -> dict[str, Any]:
        named = len(found.group.sets) + len(found.group.caches) <= NAMED
        few = found.group.worst_first(ROOM)
        cells = draw_cells(few, page_reader(request.now), named=named)
        return {
            "cells": cells,
            "more": found.group.size - few.size,
            "named": named,
            "meetings": seen()[1],
            **seen()[0].context,
        }

    def story() -> dict[str, Any]:
        told = entries.without_sightings(EntryFilter({"service": found.name}).qs)
        return history(entries.fleet(entries=told, size=HISTORY_SIZE), service=found.name)

    answer: HttpResponse = page(
        request,
        "desk/service.html",
        {"desk/service_body.html": body, "desk/service_history.html": story},
        detail=found,
        here=service_url(found.name).partition("?")[0],
        query=timelines.query_of(request),
    )
    return answer
