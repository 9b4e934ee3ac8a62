"""Asking a user in the middle of something who they are: where a session has ended, and where a decision needs a fresh
proof. What was typed is kept, and nothing is sent by proving it.
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
    """The page at `step-up`, shown in place of another one, with what was typed there."""

    page: Callable[[Asked, SavedForm | None], HttpResponse] = lambda request, kept: redirect("step-up")


# Of annexes: accounts knows by what a user proves who they are.
ASK = StepUpPage()


def in_a_box(request: HttpRequest) -> bool:
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return bool(htmx)


def stale(request: HttpRequest) -> HttpResponse | None:
    """The answer to a part of a page that was opened before its person logged in again elsewhere: it gets the new key,
    so that nothing typed is lost. None for a plain form.
    """
    # No other site can send this header: a browser would ask us first, and we would not agree.
    return box(request, status=403) if in_a_box(request) else None


def box(request: HttpRequest, *, status: int) -> HttpResponse:
    """Beside a page: the new key for whoever opened it; nobody else goes on with it."""
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
    """Only for who has proved lately that they are still there; everybody else is asked, and comes back."""

    @wraps(view)
    def guarded(request: Asked, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if step_up.recent(step_up.last(request.session), now=request.now):
            return view(request, *args, **kwargs)
        there = request.get_full_path() if request.method == "GET" else came_from(request)
        return redirect(f"{reverse('step-up')}?{urlencode({'next': there})}")

    return guarded


def proved(view: Callable[Concatenate[Asked, P], HttpResponse]) -> Callable[Concatenate[Asked, P], HttpResponse]:
    """A decision: where nothing stands in its way but that somebody proves once more who they are, they are asked in
    its place, and what they typed is kept.
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
