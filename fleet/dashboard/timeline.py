"""Timeline pictures on pages: the period, the filter, the table and the CSV file."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from fleet.dashboard.export import csv_file
from fleet.dashboard.forms import Sent
from fleet.dashboard.lanes import timeline as lanes
from fleet.dashboard.lanes.picture import Interval, Moment, Row, Scale, draw
from fleet.dashboard.pages import Asked, listed, query_with, read_view, refused
from fleet.dashboard.tags import service_url
from fleet.domain.event_types import TYPES
from fleet.domain.reasons import Refused
from fleet.domain.timeline import GROUPS, kinds_of
from fleet.operations.inputs import MomentField
from fleet.projections import spans
from fleet.projections.caches.overview import CacheDetail
from fleet.projections.filters import EntryFilter
from fleet.projections.machines import MachineDetail
from fleet.projections.pages import Page, cursor_before
from fleet.projections.refs import plain_name
from fleet.projections.sets import SetRow
from fleet.projections.spans import EventSpan, Spans
from fleet.projections.timeline import entries
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.say import say
from fleet.wording.sentences import counted
from fleet.wording.times import iso, page_reader

MAINTENANCE = "maintenance"
SHOWN = {"": "Everything", **{name: name for name in TYPES}, MAINTENANCE: "Cache maintenance"}
# At most this many services of the fleet, and lanes of other subjects, are drawn. The table has all of them.
SERVICES, MOST_LANES = 20, 40
COLUMNS = ("what", "where", "state", "begin", "until", "address")


def of_fleet(request: Asked) -> dict[str, Any]:
    """Return the timeline of the fleet, with a lane for each service."""
    choice, types = requested(request, spans.enrolled_since())
    found = spans.of_fleet(choice.window, types=types, now=request.now, whole=wants_file(request))

    def names(event: EventSpan) -> list[tuple[str, str]]:
        return [(event.service, service_url(event.service)) if event.service else ("no service", reverse("fleet"))]

    rows = sorted(lanes.rows_by(found.events, names, now=request.now), key=lambda row: -len(row.intervals))
    # The services with most events are drawn; the table has all of them.
    rows = [*_sorted(rows[:SERVICES]), *_sorted(rows[SERVICES:])]
    return _part(request, choice, rows, found, most=SERVICES)


def of_service(request: Asked, found: Spans, choice: lanes.Choice, bands: Iterable[Interval]) -> dict[str, Any]:
    """Return the timeline of a service, with a lane for each set and each cache."""

    def names(event: EventSpan) -> list[tuple[str, str]]:
        return [(say(event.set.label, page_reader()), reverse("set", args=[event.set.id]))]

    return _part(request, choice, _sorted(lanes.rows_by(found.events, names, now=request.now)), found, bands)


def of_set(request: Asked, row: SetRow) -> dict[str, Any]:
    """Return the timeline of a set, with a lane for each machine that has events, and one for all others."""
    choice, types = requested(request, spans.enrolled_since(availability_set=row.id))
    found = spans.of_machines(row.id, choice.window, types=types, now=request.now, availability_set=row.id)
    machines = {
        plain_name(one.resource_name): (one.resource_name, reverse("machine", args=[one.id])) for one in row.machines
    }

    def names(event: EventSpan) -> list[tuple[str, str]]:
        return [machines.get(plain_name(name), (name, "")) for name in event.resources] or [("no named machine", "")]

    rows = _sorted(lanes.rows_by(found.events, names, now=request.now))
    if row.omitted or {*machines.values()} - {(lane.name, lane.href) for lane in rows}:
        rows.append(Row("other machines" if rows else "all machines", []))
    return _part(request, choice, rows, found)


def of_machine(request: Asked, detail: MachineDetail) -> dict[str, Any]:
    """Return the timeline of a machine, with one lane for its own events and one for events of other machines in its
    set.
    """
    machine = detail.machine
    choice, types = requested(request, spans.enrolled_since(pk=machine.id))
    found = spans.of_machines(machine.set.id, choice.window, types=types, now=request.now, pk=machine.id)
    own = (machine.resource_name, "")
    rest = ("others of the set", reverse("set", args=[machine.set.id]))

    def names(event: EventSpan) -> list[tuple[str, str]]:
        return [own if plain_name(own[0]) in map(plain_name, event.resources) else rest]

    rows = lanes.rows_by(found.events, names, now=request.now, first=[own])
    return _part(request, choice, [replace(rows[0], hit=True), *rows[1:]], found)


def of_cache(request: Asked, choice: lanes.Choice, detail: CacheDetail) -> dict[str, Any]:
    """Return the timeline of a cache, with a lane for each shard, and one for each machine that reported whether it
    listens.
    """
    found = spans.of_cache(detail.cache.id, choice.window, now=request.now)
    (own,) = found.caches
    rows = [*lanes.shard_rows(own.maintenances, now=request.now), *lanes.listener_rows(detail.stretches)]
    return _part(request, choice, rows, Spans((), (), False, detail.gaps), gap_said="No listener", kinds={})


def as_file(request: Asked, part: dict[str, Any], name: str) -> StreamingHttpResponse:
    """Return the picture's table as a CSV file."""

    def row(line: lanes.Line) -> tuple[str, ...]:
        until = iso(line.until) if line.until else ""
        address = request.build_absolute_uri(line.href) if line.href else ""
        return line.what, line.where, line.state, iso(line.begin), until, address

    return csv_file(name, COLUMNS, map(row, part["timeline"]["lines"]))


def wants_file(request: Asked) -> bool:
    return request.GET.get("as") == "csv"


def requested(request: Asked, since: datetime | None) -> tuple[lanes.Choice, tuple[str, ...]]:
    """Return the period and the event types that the URL requests. `since` is the time from which there are
    observations.
    """
    shown = _shown(request)
    # No event has the type `-`; the number of queries stays the same.
    types = () if shown == "" else ("-",) if shown == MAINTENANCE else (shown,)
    return lanes.chosen_window(request.GET.dict(), now=request.now, since=since), types


def _shown(request: Asked) -> str:
    asked = request.GET.get("show", "")
    return asked if asked in SHOWN else ""


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.name.casefold())


def _part(
    request: Asked,
    choice: lanes.Choice,
    rows: list[Row],
    found: Spans,
    bands: Iterable[Interval] = (),
    *,
    most: int = MOST_LANES,
    gap_said: str = "No live agent",
    kinds: Mapping[str, str] = SHOWN,
) -> dict[str, Any]:
    """Return the template context of `timeline/picture.html`: the picture (`lanes`) of these rows and of the caches in
    `found`, with its table. Empty lanes come last; if all are empty, no picture is drawn.

    `gap_said` is the text of the gaps, and `kinds` are the choices of the parameter `show`. `left_out` counts the lanes
    that are not drawn; `more`: not all events were read.
    """
    chosen, now, window = _shown(request), request.now, choice.window
    # With one type of events, maintenance of caches is not shown.
    caches = [lanes.cache_row(cache, now=now) for cache in found.caches if chosen in ("", MAINTENANCE)]
    rows, most = [*rows[:most], *caches, *rows[most:]], min(MOST_LANES, most + len(caches))
    scale = Scale(window.begin, window.end)
    lines = lanes.lines_of(rows, scale)
    gaps = [gap for span in found.unwatched if scale.holds(gap := Interval(span.begin, span.end, "", gap_said))]
    summary = f"{counted(len(lines), 'thing')} in {counted(len(rows), 'lane')}"
    if gaps:
        summary += f"; {gap_said[0].lower()}{gap_said[1:]} {counted(len(gaps), 'time')}"
    picture = draw(
        scale,
        rows[:most],
        moments=[Moment("now", now, "now")] if window.begin <= now <= window.end else [],
        summary=f"{summary}.",
        bands=[band for band in bands if scale.holds(band)],
        gaps=gaps,
        zoom=partial(lanes.within, request.GET.dict()),
    )

    def address(show: str, file: str = "") -> str:
        return f"?{query_with(request, **{'cursor': '', 'show': show, 'as': file})}"

    timeline = {
        "choice": choice,
        "lines": lines,
        "left_out": max(0, len(rows) - most),
        "more": found.more,
        "shown": [lanes.Way(label, address(value), "", value == chosen) for value, label in kinds.items()],
        "file": address(chosen if kinds else "", "csv"),
    }
    return {"timeline": timeline, "lanes": picture if rows else None}


def query_of(request: Asked) -> str:
    """Return the requested period and kinds as a URL query, with which a refresh repeats the request."""
    return query_with(request, **{"as": ""})


# The fleet's timeline.


def _groups(request: Asked) -> list[lanes.Way]:
    """Return the filters by group of kinds, which keep the other filters of the page."""
    chosen, found = set(request.GET.getlist("kind")), []
    for label in GROUPS:
        query = request.GET.copy()
        kinds = [kind.value for kind in kinds_of(label)]
        query.setlist("kind", kinds)
        for name in ("cursor", "part"):
            query.pop(name, None)
        found.append(lanes.Way(label, f"?{query.urlencode()}", "", set(kinds) == chosen))
    return found


class JumpForm(Sent):
    wrong = "Enter a date and a time of day between the years 2000 and 2100, such as 2026-11-26 03:00."
    at = MomentField(required=False)


@read_view("timeline/", "timeline")
def fleet_timeline(request: Asked) -> HttpResponseBase:
    found = EntryFilter(request.GET).qs
    if not any(request.GET.get(name) for name in ("event", "kind", "machine", "machine_name")):
        found = entries.without_sightings(found)
    context: dict[str, Any]
    try:
        context = {"jump_at": JumpForm(request.GET).values["at"]}
    except Refused as error:
        context = {"refusal": refused(error)["refusal"]}
    # The whole minute: the field has no seconds.
    start = cursor_before(context["jump_at"] + timedelta(minutes=1)) if context.get("jump_at") else None

    def read(cursor: str | None) -> Page[TimelineRow]:
        return entries.fleet(entries=found, cursor=cursor or start)

    drawn = cache(lambda: of_fleet(request))
    if wants_file(request):
        return as_file(request, drawn(), "fleet-timeline")
    # A timeline filtered by one object has no picture here: the object's own page has it.
    whole = start is None and not any(request.GET.get(name) for name in (*EntryFilter.base_filters, "cursor"))
    more_parts = {"timeline/fleet_picture.html": drawn} if whole else {}
    return listed(
        request,
        "timeline/page.html",
        "timeline/entry_rows.html",
        read,
        more_parts,
        whole=whole,
        groups=_groups(request),
        jump=[(name, value) for name in EntryFilter.base_filters for value in request.GET.getlist(name)],
        **context,
    )
