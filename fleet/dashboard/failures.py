"""Pages for what went wrong: each says what happened, whether anything was done, and what to do."""

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse

from fleet.dashboard.pages import Asked, failure, page, reader
from fleet.domain.actor import REQUEST_ID
from fleet.domain.patience import sqlstate
from fleet.wording.problems import database_waits


@reader
def not_found(request: Asked, exception: Exception) -> HttpResponse:
    """The 404 of addresses that lead nowhere, and of things that are not there."""
    # Django's own says which patterns it tried.
    reason = exception.args[0] if exception.args and isinstance(exception.args[0], str) else ""
    return page(request, "404.html", status=404, reason=reason)


def failed(request: HttpRequest) -> HttpResponse:
    """The answer where a view, or what comes before it, has failed: try again where it is the database."""
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError | InterfaceError):
        reason = database_waits(sqlstate(error))
        return failure(503, headers={"Retry-After": "2"}, reason=reason, again=request.method == "GET")
    return failure(500, request_id=request.META.get(REQUEST_ID, ""))


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The answer to a form that does not come from a page of this login."""
    return failure(403)


def unreadable(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to a request that is none, or that is for another host."""
    return failure(400)
