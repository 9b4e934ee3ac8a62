"""Storage, for admins: what the database holds, how it grows, what leaves next, and how the archive is."""

from django.http import HttpResponse
from django.shortcuts import render

from fleet.dashboard.pages import Asked, page, shown
from fleet.domain.people import Right
from fleet.projections.timeline.storage import storage


@shown
def storage_page(request: Asked) -> HttpResponse:
    if not request.rights.may(Right.ADMINISTER):
        return render(request, "403.html", {"reason": "Seeing storage needs the right of an admin."}, status=403)
    return page(request, "timeline/storage.html", storage=storage(now=request.now))
