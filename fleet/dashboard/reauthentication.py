"""Reauthentication: after a session has ended, and before an action that needs a recent proof of identity.

Text that the user typed is preserved, and proving the identity does not submit the form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.middleware import HtmxDetails

from fleet.dashboard.pages import Asked, came_from
from fleet.dashboard.saved_form import SavedForm, page_user, save_form
from fleet.domain.approvals.guards import Need
from fleet.domain.reasons import Refused
from fleet.operations import step_up

P = ParamSpec("P")


@dataclass(slots=True)
class StepUpPage:
    """Hook that an annex sets: `page` shows the page `step-up` with a form to prove the identity, and keeps the fields
    of the interrupted form.
    """

    page: Callable[[Asked, SavedForm | None], HttpResponse] = lambda request, kept: redirect("step-up")


# Set by annexes: accounts knows how a user proves the identity.
ASK = StepUpPage()


def in_a_box(request: HttpRequest) -> bool:
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return bool(htmx)


def stale(request: HttpRequest) -> HttpResponse | None:
    """Return the response to a request with an outdated CSRF token, after the user signed in again in another tab. It
    contains the new token, so that the typed text is not lost. None for a form sent without htmx.
    """
    # No other site can send this header: the browser would send a preflight request, which is refused.
    return box(request, status=403) if in_a_box(request) else None


def box(request: HttpRequest, *, status: int) -> HttpResponse:
    """Return the sign-in box, or the new CSRF token if the user who opened the page is signed in again. Another user
    cannot continue on that page.
    """
    whose = page_user(request)
    context = {"whose": whose, "token": get_token(request)}
    same = request.user.is_authenticated and request.user.get_username() == whose
    other = "again/other.html" if request.user.is_authenticated else "again/box.html"
    answer = render(request, "again/done.html" if same else other, context, status=status)
    answer["HX-Retarget"], answer["HX-Reswap"] = "#again", "innerHTML"
    return answer


def asked_again(
    view: Callable[Concatenate[Asked, P], HttpResponseBase],
) -> Callable[Concatenate[Asked, P], HttpResponseBase]:
    """Restrict a view to users with a recent proof of identity. Other users are asked for one and then return to the
    view.
    """

    @wraps(view)
    def guarded(request: Asked, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if step_up.recent(step_up.last(request.session), now=request.now):
            return view(request, *args, **kwargs)
        there = request.get_full_path() if request.method == "GET" else came_from(request)
        return redirect(f"{reverse('step-up')}?{urlencode({'next': there})}")

    return guarded


def proved(view: Callable[Concatenate[Asked, P], HttpResponse]) -> Callable[Concatenate[Asked, P], HttpResponse]:
    """Decorate the view of a decision. If only a recent proof of identity is missing, it asks for one and preserves the
    typed text.
    """

    @wraps(view)
    def guarded(request: Asked, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Refused as error:
            standing: Any = error.details.get("guards", ())
            if not standing or any(guard["needs"] != Need.STEP_UP.value for guard in standing):
                raise
        return ASK.page(request, save_form(request, request.user.get_username()))

    return guarded
