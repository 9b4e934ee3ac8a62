"""Where Drydock would not see what Azure announces."""

from functools import partial

from django.http import HttpResponse

from fleet.dashboard.pages import Asked, listed, page, shown
from fleet.domain.blind_spots.find import ORDER
from fleet.domain.reasons import Reason
from fleet.projections import blind_spots


@shown
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
