"""Where Drydock would not see what Azure announces."""

from django.http import HttpResponse

from fleet.dashboard.pages import Asked, page, shown
from fleet.projections import blind_spots


@shown
def blind_spot_page(request: Asked) -> HttpResponse:
    return page(
        request,
        "blind_spots/page.html",
        {"blind_spots/blind_spot_rows.html": lambda: {"found": blind_spots.overview(now=request.now)}},
    )
