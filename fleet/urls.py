"""URL configuration of the whole backend, and its error handlers."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import include, path
from django.views.generic import RedirectView

from fleet.accounts import urls as accounts
from fleet.accounts.calendars import feed
from fleet.api import problems
from fleet.api import urls as api
from fleet.audit import urls as audit
from fleet.dashboard import failures
from fleet.dashboard import urls as dashboard
from fleet.notifications import urls as notifications

# Those of the core, then those of each annex.
CALLS = [*api.CALLS, *accounts.CALLS, *audit.CALLS, *notifications.CALLS]
PAGES = [*dashboard.PAGES, *accounts.PAGES, *audit.PAGES, *notifications.PAGES]

urlpatterns = [
    path("api/", include(CALLS)),
    path("api/v1/calendar/<str:token>.ics", feed, name="api-calendar"),
    # Answers every other address below it.
    path("api/", include("fleet.api.urls")),
    path("calendar/<str:token>.ics", feed, name="calendar"),
    path("hooks/", include("fleet.notifications.hooks")),
    # One door: the admin's own form would let people guess passwords without end.
    path("admin/login/", RedirectView.as_view(pattern_name="account_login", query_string=True)),
    # One page for one's password, which counts guesses and leaves a line: the admin's does neither.
    path("admin/password_change/", RedirectView.as_view(pattern_name="you-password")),
    path("admin/password_change/done/", RedirectView.as_view(pattern_name="you-password")),
    path("admin/", admin.site.urls),
    path("", include(PAGES)),
]

Handler = Callable[..., HttpResponseBase]


def by_edge(page: Handler, problem: Handler) -> Handler:
    """Return an error handler that answers `problem` (a problem document) below `/api/`, and `page` for all other
    URLs.
    """

    def handler(request: HttpRequest, *exception: Any, **more: Any) -> HttpResponseBase:
        return (problem if request.path.startswith("/api/") else page)(request, *exception, **more)

    return handler


handler400 = by_edge(failures.unreadable, problems.unreadable)
handler404 = by_edge(failures.not_found, problems.not_found)
handler500 = by_edge(failures.failed, problems.failed)
