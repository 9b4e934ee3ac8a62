"""Fleet map: one cell for each of thousands of sets, also as a table and as a CSV file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.gzip import gzip_page

from fleet.dashboard.export import csv_file
from fleet.dashboard.pages import Asked, page, query_with, read_view
from fleet.domain.desk import WorstState
from fleet.domain.states import Presence
from fleet.projections.desk.fleet_map import CacheCell, FleetMap, MapFilter, ServiceGroup, SetCell, fleet_map
from fleet.wording.badges import badge_of
from fleet.wording.say import say
from fleet.wording.sets import KINDS
from fleet.wording.times import API, Reader, iso, page_reader

# Rows of the table on one page.
ROWS = 100
# Up to this many cells show their names; beyond that, a cell shows its name on hover.
NAMED = 60
# Bounds of one page, in cells; the heading of a service takes the space of `HEAD` cells. Services beyond that space are
# one cell each, and at most `MOST_SERVICES` of those are drawn.
ROOM, HEAD, MOST_SERVICES = 600, 7, 400
# At most this many cells of a service are drawn next to other services; a single service fills the space.
MOST_OF_ONE = 120
COLUMNS = ("set", "kind", "service", "subscription", "resource_group", "regions", "state", "next_not_before")
COUNTS = ("undecided", "scheduled", "started", "without_agent")


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """A service with its drawn cells. `more` counts cells that are omitted for lack of space; the URL `rest` lists
    them.
    """

    group: ServiceGroup
    cells: SafeString
    more: int
    rest: str


@gzip_page
@read_view
def map_page(request: Asked) -> HttpResponse:
    chosen = MapFilter.of(request.GET.dict())
    as_table = request.GET.get("as") == "table"

    def body() -> dict[str, Any]:
        found = fleet_map(now=request.now, chosen=chosen)
        shown = _rows(found, request) if as_table else _laid_out(found, request)
        return {"map": found, "chips": _chips(found, request), "choices": _offered(found), **shown}

    return page(
        request,
        "desk/map_page.html",
        {"desk/map.html": body},
        query=_with(request).removeprefix("?"),
        chosen=chosen,
        as_table=as_table,
        as_map=_with(request, **{"as": ""}),
        as_rows=_with(request, **{"as": "table"}),
        kinds=KINDS,
        presences=[(presence.value, badge_of(presence).label) for presence in Presence],
        states=[(glance.value, badge_of(glance).label) for glance in WorstState],
    )


@read_view
def map_csv(request: Asked) -> StreamingHttpResponse:
    """Return every set that matches the page's filter as a CSV file, the worst state first."""
    found = fleet_map(now=request.now, chosen=MapFilter.of(request.GET.dict()))
    columns = [*COLUMNS, *(presence.value for presence in Presence), *COUNTS]
    return csv_file("fleet", columns, map(_csv_row, found.cells))


def _laid_out(found: FleetMap, request: Asked) -> dict[str, Any]:
    """Return services with their cells, the worst state first, as long as there is space. Every other service becomes
    one cell.
    """
    reader, room, drawn = page_reader(request.now), ROOM, list[DrawnGroup]()
    named = sum(group.size for group in found.groups) <= NAMED
    most = MOST_OF_ONE if len(found.groups) > 1 else ROOM
    for group in found.groups:
        few = group.worst_first(most)
        room -= few.size + HEAD
        if room < 0 and drawn:
            break
        rest = _with(request, **{"as": "table", "service": group.service or request.GET.get("service", "")})
        drawn.append(DrawnGroup(group, draw_cells(few, reader, named=named), group.size - few.size, rest))
    others = found.groups[len(drawn) :]
    # Names are escaped; all other text is ours.
    cells = mark_safe("".join(_services(others[:MOST_SERVICES], request, reader)))  # noqa: S308
    unseen = max(0, len(others) - MOST_SERVICES)
    return {"groups": drawn, "named": named, "others": cells, "other_count": len(others), "unseen": unseen}


def draw_cells(group: ServiceGroup, reader: Reader, *, named: bool) -> SafeString:
    """Return the HTML of a service's cells: one link for each. It is as short as possible, because a page has
    thousands.
    """
    drawn = [
        *_drawn(group.sets, _base("set"), reader, named=named),
        *_drawn(group.caches, _base("cache"), reader, named=named, also="cache"),
    ]
    # Names are escaped; all other text is ours.
    return mark_safe("".join(drawn))  # noqa: S308


def _services(groups: Iterable[ServiceGroup], request: Asked, reader: Reader) -> Iterator[str]:
    """Yield for each service the HTML of one cell that links to the service's own map."""
    for group in groups:
        mark = "" if group.glance is WorstState.LIVE else f" g-{group.glance}"
        leads = {"service": group.service} if group.service else {"as": "table"}
        there = escape(_with(request, **leads))
        yield f'<a class="service{mark}" href="{there}" title="{escape(say(group.title, reader))}"></a>'


def _drawn(
    cells: Iterable[SetCell | CacheCell], base: str, reader: Reader, *, named: bool, also: str = ""
) -> Iterator[str]:
    for cell in cells:
        # Most are live: a cell without a class is drawn as live.
        marks = [*([] if cell.glance is WorstState.LIVE else [f"g-{cell.glance}"]), *([also] if also else [])]
        mark = f' class="{" ".join(marks)}"' if marks else ""
        label = cell.label if isinstance(cell, SetCell) else cell.name
        # The title already contains the name and the state.
        name = f"<span aria-hidden=true>{escape(say(label, reader))}</span>" if named else ""
        yield f'<a href={base}{cell.id}/{mark} title="{escape(say(cell.title, reader))}">{name}</a>'


def _base(name: str) -> str:
    return reverse(name, args=[0]).removesuffix("0/")


def _with(request: Asked, **changed: str) -> str:
    """Return the URL of this page with these query values changed, starting at the first rows."""
    return f"?{query_with(request, **{'page': '', **changed})}"


def _chips(found: FleetMap, request: Asked) -> list[tuple[WorstState, int, str, bool]]:
    """Return for each state: the state, its count, the URL that selects it (or removes the filter if it is selected),
    and whether it is selected.
    """
    chosen = request.GET.get("state", "")
    return [
        (glance, count, _with(request, state="" if chosen == glance else glance.value), chosen == glance)
        for glance, count in found.counts
    ]


def _offered(found: FleetMap) -> list[tuple[str, str, tuple[str, ...]]]:
    labels = {"service": "Service", "subscription": "Subscription", "resource_group": "Resource group"}
    labels |= {"region": "Region", "type": "Event type"}
    return [(name, label, found.choices[name]) for name, label in labels.items()]


def _rows(found: FleetMap, request: Asked) -> dict[str, Any]:
    rows = Paginator(found.cells, ROWS).get_page(request.GET.get("page"))
    newer = _with(request, page=str(rows.number - 1)) if rows.has_previous() else ""
    older = _with(request, page=str(rows.number + 1)) if rows.has_next() else ""
    return {"rows": rows.object_list, "newer": newer, "older": older}


def _csv_row(cell: SetCell) -> tuple[Any, ...]:
    return (
        say(cell.label, API),
        cell.kind,
        cell.service,
        cell.subscription,
        cell.resource_group,
        " ".join(cell.regions),
        cell.glance.value,
        iso(cell.due_at) if cell.due_at else None,
        *(getattr(cell.presence, presence.value) for presence in Presence),
        *(getattr(cell, name) for name in COUNTS),
    )
