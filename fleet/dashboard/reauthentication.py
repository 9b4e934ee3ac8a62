"""Reauthentication on a page: after the session has ended, and for a decision that needs a fresh proof of identity.

Typed text is kept, and proving the identity sends nothing.
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
    """The page at `step-up`, shown in place of another one, with the form that was filled in there."""

    page: Callable[[Asked, SavedForm | None], HttpResponse] = lambda request, kept: redirect("step-up")


# Set by annexes: accounts knows how a user proves the identity.
ASK = StepUpPage()


def in_a_box(request: HttpRequest) -> bool:
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return bool(htmx)


def stale(request: HttpRequest) -> HttpResponse | None:
    """Return the response to a part of a page that was opened before its user signed in again elsewhere. It contains
    the new CSRF token, so that no typed text is lost. None for a plain form.
    """
    # No other site can send this header: the browser would send a preflight request, which is refused.
    return box(request, status=403) if in_a_box(request) else None


def box(request: HttpRequest, *, status: int) -> HttpResponse:
    """Return the box with the new CSRF token for the user who opened the page; another user cannot continue."""
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
    """Restrict a view to users with a recent proof of identity; other users are asked for one and return."""

    @wraps(view)
    def guarded(request: Asked, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if step_up.recent(step_up.last(request.session), now=request.now):
            return view(request, *args, **kwargs)
        there = request.get_full_path() if request.method == "GET" else came_from(request)
        return redirect(f"{reverse('step-up')}?{urlencode({'next': there})}")

    return guarded


def proved(view: Callable[Concatenate[Asked, P], HttpResponse]) -> Callable[Concatenate[Asked, P], HttpResponse]:
    """Decorate a decision. If only a fresh proof of identity is missing, ask for it in place of the page, and keep the
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
