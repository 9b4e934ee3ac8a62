"""Error pages. Each states what happened, whether anything was changed, and what to do next."""

import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token

from fleet.dashboard.pages import Asked, failure, page, require_reader
from fleet.dashboard.reauthentication import stale
from fleet.dashboard.saved_form import save_form
from fleet.domain.actor import REQUEST_ID
from fleet.domain.db_timeouts import is_timeout, sqlstate
from fleet.domain.orders.by_hand import linux_command, look_command, windows_command
from fleet.wording.problems import DATABASE_AWAY, FAILURES, ONLY_SHOWS, database_waits

# Commands for a machine of any set: open events are unknown without the database.
BY_HAND = {"look": look_command(), "linux": linux_command("EVENT-ID"), "windows": windows_command("EVENT-ID")}


class PageForEveryFailure:
    """Middleware that replaces error responses without content, such as Django's 405, by an error page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # Postgres accepts no NUL in a text, so no page can use it.
        if not request.path.startswith("/api/") and "\x00" in request.path + unquote(request.META["QUERY_STRING"]):
            return failure(400)
        answer = self.get_response(request)
        bare = answer.status_code in FAILURES and not answer.streaming and not getattr(answer, "content", b"")
        if not bare or request.path.startswith("/api/"):
            return answer
        said = {}
        if answer.status_code == 405 and "POST" not in answer.get("Allow", ""):
            said = dict(zip(("title", "reason"), ONLY_SHOWS, strict=True))
        headers = {name: answer[name] for name in ("Allow", "Retry-After") if name in answer}
        return failure(answer.status_code, headers=headers, **said)


@require_reader
def not_found(request: Asked, exception: Exception) -> HttpResponse:
    """Return the 404 page for an unknown URL or a missing object."""
    # Django's own reason lists the patterns that it tried.
    reason = exception.args[0] if exception.args and isinstance(exception.args[0], str) else ""
    return page(request, "404.html", status=404, reason=reason)


def failed(request: HttpRequest) -> HttpResponse:
    """Return the error page after an exception in a view or middleware. It uses neither the database nor the
    session.
    """
    error = sys.exc_info()[1]
    if not isinstance(error, OperationalError | InterfaceError):
        return failure(500, request_id=request.META.get(REQUEST_ID, ""))
    said: dict[str, Any] = {"reason": database_waits(sqlstate(error)), "again": request.method == "GET"}
    # The CSRF token was checked before the database failed, so the form can be sent again as it is.
    if request.method == "POST" and getattr(request, "csrf_processing_done", False):
        said |= {"kept": save_form(request, ""), "csrf_token": get_token(request)}
    if not is_timeout(error):
        said |= {"title": DATABASE_AWAY, "by_hand": BY_HAND}
    return failure(503, headers={"Retry-After": "2"}, **said)


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return the error page for a form that was not sent from a page of this session (CSRF check)."""
    return stale(request) or failure(403)


def unreadable(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the error page for a malformed request, or for one with a wrong Host header."""
    return failure(400)


def page_of(status: int) -> bytes:
    """Return the error page for an HTTP status if the gateway refuses the request before it reaches Django."""
    return failure(status if status in FAILURES else 500).content
