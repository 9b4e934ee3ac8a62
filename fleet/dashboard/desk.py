"""Where Drydock would not see what Azure announces."""

from functools import cache, partial

from django.http import HttpResponse

from fleet.dashboard import first_steps
from fleet.dashboard.pages import Asked, listed, page, read_view
from fleet.domain.blind_spots.find import ORDER
from fleet.domain.reasons import Reason
from fleet.projections import blind_spots, sets
from fleet.projections.caches import maintenances
from fleet.projections.desk import queue, selection, status_bar
from fleet.projections.timeline import entries


@read_view
def blind_spot_page(request: Asked) -> HttpResponse:
    """All kinds with the first of each, or with `?kind=` all of one kind, page by page."""
    kind = request.GET.get("kind", "")
    if kind in ORDER:
        read = partial(blind_spots.page, now=request.now, code=kind)
        title = Reason(f"{kind}.title")
        return listed(request, "blind_spots/kind.html", "blind_spots/kind_rows.html", read, kind=kind, title=title)
    return page(
        request,
        "blind_spots/page.html",
        {"blind_spots/blind_spot_rows.html": lambda: {"found": blind_spots.overview(now=request.now)}},
    )


# The front page: what needs a decision, then the sets, then the fleet's timeline.

# So many sets stand below so many events, whatever is to be done with them.
SETS_BELOW = ((queue.CARDS, 12), (queue.SHOWN, 6), (float("inf"), 3))
# What all who have it open ask for at each change.
SAME = ("desk/head.html", "desk/queue.html", "desk/cards.html", "desk/under_maintenance.html", "desk/recent.html")


def _sets(waiting: queue.DecisionQueue) -> int:
    """Fewer sets stand below a queue that is long: the page stays small when it matters most."""
    return next(most for up_to, most in SETS_BELOW if len(waiting.items) <= up_to)


@read_view
def decision_queue(request: Asked) -> HttpResponse:
    """Each part is a region (`data-live`): when the stream tells of a change, the browser asks for that part again."""
    now = request.now
    waiting = cache(lambda: queue.decision_queue(now=now, rights=request.rights))
    beginning = {"desk/first_steps.html": lambda: first_steps.parts(request)} if first_steps.wanted(request) else {}
    return page(
        request,
        "desk/page.html",
        beginning
        | {
            "desk/queue.html": lambda: {
                "queue": waiting(),
                "pulse": waiting().pulse,
                "overview": status_bar.overview(now=now),
                "most": selection.MOST,
            },
            "desk/cards.html": lambda: {"cards": sets.cards(now=now, first=waiting().set_ids, limit=_sets(waiting()))},
            "desk/under_maintenance.html": lambda: {"under_maintenance": maintenances.active()},
            "desk/recent.html": lambda: {"entries": entries.fleet(size=15).results},
        },
        same=SAME,
    )


@read_view
def pulse(request: Asked) -> HttpResponse:
    """What the head of every page tells: the count and the shortest time, and the strip."""
    return page(request, "desk/head.html", same=SAME)
