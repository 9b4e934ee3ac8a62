"""The fleet's timeline."""

from functools import cache, partial

from django.http.response import HttpResponseBase

from fleet.dashboard import timelines
from fleet.dashboard.pages import Asked, listed, shown
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries


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
