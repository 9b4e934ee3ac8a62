"""Fleet map: from a few sets with their events to a heat map of thousands, also as a table and as a CSV file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from math import isqrt
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.gzip import gzip_page

from fleet.dashboard.export import csv_file
from fleet.dashboard.pages import Asked, page, query_with, read_view
from fleet.domain.desk import CacheState, WorstState
from fleet.domain.states import Presence
from fleet.projections.desk import fleet_map as maps
from fleet.wording.badges import badge_of
from fleet.wording.say import say
from fleet.wording.sets import KINDS
from fleet.wording.times import API, Reader, iso, page_reader

# Rows of the table on one page.
ROWS = 100
# How the map is drawn, by the number of sets and caches. Up to `FEW`: each with its numbers and next event. Up to
# `PLACES` together with the headings: cells with names, which fit into a window of 1280 x 800 pixels. Up to `ROOM`:
# small cells. Beyond that: a heat map with a tile for each group.
FEW, PLACES, ROOM = 12, 126, 600
# A tile has a dot for each set, in rows of at least this many; tiles have this many bytes together.
TILE_COLUMNS, TILE_BYTES = 20, 100_000
LABELS = {
    "service": "Service",
    "subscription": "Subscription",
    "resource_group": "Resource group",
    "region": "Region",
    "type": "Event type",
}
COLUMNS = ("set", "kind", "service", "subscription", "resource_group", "regions", "state", "next_not_before")
COUNTS = ("undecided", "scheduled", "started", "without_agent")


@gzip_page
@read_view("fleet/", "fleet")
def map_page(request: Asked) -> HttpResponse:
    chosen = maps.MapFilter.of(request.GET.dict())
    as_table = request.GET.get("as") == "table"

    def body() -> dict[str, Any]:
        found = maps.fleet_map(now=request.now, chosen=chosen)
        shown = _rows(found, request) if as_table else _laid_out(found, request)
        chips = {"set": _chips(found.counts, request), "cache": _chips(found.cache_counts, request, kind="cache")}
        offered = [(name, label, getattr(chosen, name), found.choices[name]) for name, label in LABELS.items()]
        return {"map": found, "chips": chips, "choices": offered, "zoomed": _zoomed(chosen, request), **shown}

    return page(
        request,
        "desk/map_page.html",
        {"desk/map.html": body},
        query=_with(request).removeprefix("?"),
        chosen=chosen,
        as_table=as_table,
        as_map=_with(request, **{"as": ""}),
        as_rows=_with(request, **{"as": "table"}),
        kinds=KINDS | {"cache": "cache"},
        presences=[(presence.value, badge_of(presence).label) for presence in Presence],
        states=[(state.value, badge_of(state).label) for state in WorstState],
    )


@read_view("fleet/export.csv", "fleet-csv")
def map_csv(request: Asked) -> StreamingHttpResponse:
    """Return every set that matches the page's filter as a CSV file, the worst state first."""
    found = maps.fleet_map(now=request.now, chosen=maps.MapFilter.of(request.GET.dict()))
    columns = [*COLUMNS, *(presence.value for presence in Presence), *COUNTS]
    return csv_file("fleet", columns, map(_csv_row, found.cells))


def _laid_out(found: maps.FleetMap, request: Asked) -> dict[str, Any]:
    """Return the template context of the map, with the level of detail for which there is space."""
    if found.size <= FEW:
        return {"level": "cards"}
    reader, by = page_reader(request.now), request.GET.get("by", "")
    by = by if by in maps.DIMENSIONS else maps.DIMENSIONS[0]
    groups = found.grouped(by)
    if found.size > ROOM and len(groups) == 1:
        # The next dimension that divides them.
        parted = ((name, parts) for name in maps.DIMENSIONS if len(parts := found.grouped(name)) > 1)
        by, groups = next(parted, (by, groups))
    ways = [(LABELS[name], _with(request, by=name), name == by) for name in maps.DIMENSIONS]
    if found.size > ROOM and len(groups) > 1:
        tiles, more = _tiles(groups, by, request, reader)
        return {"level": "heat", "ways": ways, "tiles": tiles, "more": more}
    named = found.size + len(groups) <= PLACES
    drawn = [
        (group, _zoom(group, by, request), draw_cells(group.worst_first(ROOM), reader, named=named)) for group in groups
    ]
    more = max(0, found.size - ROOM)
    return {"level": "names" if named else "cells", "by": by, "ways": ways, "groups": drawn, "more": more}


def draw_cells(group: maps.MapGroup, reader: Reader, *, named: bool) -> SafeString:
    """Return the HTML of a group's cells: one link for each. It is as short as possible, because a page has
    hundreds.
    """
    drawn = [
        *_drawn(group.sets, _base("set"), reader, named=named),
        *_drawn(group.caches, _base("cache"), reader, named=named, also="cache"),
    ]
    # Names are escaped; all other text is ours.
    return mark_safe("".join(drawn))  # noqa: S308


def _zoom(group: maps.MapGroup, by: str, request: Asked) -> str:
    """Return the URL of the map of this group alone."""
    return _with(request, **{by: group.name or maps.NOT_STATED, "by": ""})


def _tiles(groups: Sequence[maps.MapGroup], by: str, request: Asked, reader: Reader) -> tuple[SafeString, int]:
    """Return the HTML of a tile for each group, and the number of groups for which there is no space. A tile links to
    the map of its group, and has a dot for each set and cache.
    """
    tiles, room = list[str](), TILE_BYTES
    for group in groups:
        columns = max(TILE_COLUMNS, isqrt(4 * group.size))
        sets, below = _dots(group.set_counts, columns, 0)
        caches, below = _dots(group.cache_counts, columns, below)
        name, title = escape(group.name or "Not stated"), escape(say(group.title, reader))
        width, height = 6 * columns, 6 * below
        tile = (
            f'<a class=g-{group.state} href="{escape(_zoom(group, by, request))}" title="{title}">'
            f"<span aria-hidden=true><b>{name}</b> {group.size}</span>"
            f'<svg viewBox="0 0 {width} {height}" width={width} height={height} aria-hidden=true>{sets}'
            f"{f'<g>{caches}</g>' if caches else ''}</svg></a>"
        )
        room -= len(tile.encode())
        if room < 0:
            break
        tiles.append(tile)
    # Names are escaped; all other text is ours.
    return mark_safe("".join(tiles)), len(groups) - len(tiles)  # noqa: S308


def _dots(counts: Iterable[tuple[WorstState | CacheState, int]], columns: int, below: int) -> tuple[str, int]:
    """Return an SVG path for each state, with a line for each run of dots in rows of this many columns, and the number
    of rows. Rows above `below` are taken. The style sheet makes a dot of each 6 units of a line.
    """
    place, paths = columns * below, []
    for state, count in counts:
        line, end = "", place + count
        while place < end:
            row, column = divmod(place, columns)
            run = min(end - place, columns - column)
            line += f"M{6 * column} {6 * row + 3}h{6 * run - 1}"
            place += run
        paths.append(f'<path class=g-{state} d="{line}"/>')
    return "".join(paths), -(-place // columns)


def _drawn(
    cells: Iterable[maps.SetCell | maps.CacheCell], base: str, reader: Reader, *, named: bool, also: str = ""
) -> Iterator[str]:
    for cell in cells:
        # Most are live: a cell without a class is drawn as live.
        marks = [*([] if cell.state == WorstState.LIVE.value else [f"g-{cell.state}"]), *([also] if also else [])]
        mark = f' class="{" ".join(marks)}"' if marks else ""
        label = cell.label if isinstance(cell, maps.SetCell) else cell.name
        # The title already contains the name and the state.
        name = f"<span aria-hidden=true>{escape(say(label, reader))}</span>" if named else ""
        yield f'<a href={base}{cell.id}/{mark} title="{escape(say(cell.title, reader))}">{name}</a>'


def _base(name: str) -> str:
    return reverse(name, args=[0]).removesuffix("0/")


def _with(request: Asked, **changed: str) -> str:
    """Return the URL of this page with these query values changed, starting at the first rows."""
    return f"?{query_with(request, **{'page': '', **changed})}"


def _chips(
    counts: Iterable[tuple[WorstState | CacheState, int]], request: Asked, kind: str = ""
) -> list[tuple[WorstState | CacheState, int, str, bool]]:
    """Return for each state: the state, its count, the URL that selects it (or removes the filter if it is selected),
    and whether it is selected.
    """
    chosen, found = request.GET.get("state", ""), []
    for state, count in counts:
        picked = chosen == state.value and (request.GET.get("kind") == "cache") == bool(kind)
        changed = {"state": "" if picked else state.value, **({"kind": "" if picked else kind} if kind else {})}
        found.append((state, count, _with(request, **changed), picked))
    return found


def _zoomed(chosen: maps.MapFilter, request: Asked) -> list[tuple[str, str, str]]:
    """Return each filter except the one by state: label, value, and the URL without it."""
    labels = LABELS | {"q": "Name", "presence": "Machines", "kind": "Kind"}
    return [
        (
            labels[name],
            (KINDS if name == "kind" else {maps.NOT_STATED: "not stated"}).get(value, value),
            _with(request, **{name: ""}),
        )
        for name, value in asdict(chosen).items()
        if value and name in labels
    ]


def _rows(found: maps.FleetMap, request: Asked) -> dict[str, Any]:
    rows = Paginator(found.cells, ROWS).get_page(request.GET.get("page"))
    newer = _with(request, page=str(rows.number - 1)) if rows.has_previous() else ""
    older = _with(request, page=str(rows.number + 1)) if rows.has_next() else ""
    return {"rows": rows.object_list, "newer": newer, "older": older}


def _csv_row(cell: maps.SetCell) -> tuple[Any, ...]:
    return (
        say(cell.label, API),
        cell.kind,
        cell.service,
        cell.subscription,
        cell.resource_group,
        " ".join(cell.regions),
        cell.state.value,
        iso(cell.due_at) if cell.due_at else None,
        *(getattr(cell.presence, presence.value) for presence in Presence),
        *(getattr(cell, name) for name in COUNTS),
    )
