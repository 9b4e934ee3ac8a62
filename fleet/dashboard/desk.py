"""The decision queue on the front page, and the page of blind spots."""

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
    """Show all kinds with the first rows of each, or with `?kind=` all rows of one kind, page by page."""
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


# The front page: events that need a decision, then the sets, then the fleet's timeline.

# Number of sets below the queue, by the number of events in it.
SETS_BELOW = ((queue.CARDS, 12), (queue.SHOWN, 6), (float("inf"), 3))
# Parts that every open front page requests at each change.
SAME = ("desk/head.html", "desk/queue.html", "desk/cards.html", "desk/under_maintenance.html", "desk/recent.html")


def _sets(waiting: queue.DecisionQueue) -> int:
    """Return the number of sets to show: fewer below a long queue, so that the page stays small when it matters
    most.
    """
    return next(most for up_to, most in SETS_BELOW if len(waiting.items) <= up_to)


@read_view
def decision_queue(request: Asked) -> HttpResponse:
    """Show the front page. Each part is a region (`data-live`), which the browser requests again after a change in the
    stream.
    """
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
    """Return the status bar with the number of waiting events and the shortest time left."""
    return page(request, "desk/head.html", same=SAME)
