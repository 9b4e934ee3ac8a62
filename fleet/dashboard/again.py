"""Who somebody is, asked in the middle of something: where a session has ended, and where a decision wants a fresh
proof. What was typed is kept, and nothing is sent by proving it.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode

from allauth.account.forms import ReauthenticateForm
from allauth.account.utils import get_next_redirect_url
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe
from django_htmx.middleware import HtmxDetails

from fleet.dashboard.pages import Asked, came_from, page, reader
from fleet.dashboard.people import proof
from fleet.dashboard.people.sign_on import step_up_address
from fleet.dashboard.saved_form import SavedForm, load_form, page_user, save_form
from fleet.domain.approvals.guards import Need
from fleet.domain.reasons import Refused
from fleet.operations.people import step_up
from fleet.projections.people.factors import Factors, factors_of

P = ParamSpec("P")
# In the session: what somebody was about to send when they were asked who they are.
KEPT = "kept"


def in_a_box(request: HttpRequest) -> bool:
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return bool(htmx)


def keep(request: HttpRequest, kept: SavedForm | None) -> None:
    """What was typed waits in the session for its person to be back."""
    if kept is not None:
        request.session[KEPT] = kept.sealed


def stale(request: HttpRequest) -> HttpResponse | None:
    """The answer to a part of a page that was opened before its person logged in again elsewhere: it gets the new key,
    so that nothing typed is lost. None for a plain form.
    """
    # No other site can send this header: a browser would ask us first, and we would not agree.
    return _box(request, status=403) if in_a_box(request) else None


def _box(request: HttpRequest, *, status: int) -> HttpResponse:
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
        return _ask(request, save_form(request, request.user.get_username()))

    return guarded


@require_safe
@reader
@asked_again
def back(request: Asked) -> HttpResponse:
    """Somebody has proved who they are, in the middle of something: they press the button once more, and see before
    what it sends.
    """
    if request.htmx:
        return _box(request, status=200)
    kept = load_form(request.session.pop(KEPT, ""))
    # Nobody else goes on with what somebody typed.
    if kept is None or kept.username != request.user.get_username():
        return redirect("queue")
    return render(request, "again/send.html", {"kept": kept})


@sensitive_post_parameters()
@reader
def step_up_page(request: Asked) -> HttpResponse:
    """Asked again: by a second factor, by the password where there is none, or at the provider."""
    if request.method != "POST":
        return _ask(request, status=200)
    kept = load_form(request.POST.get("kept", ""))
    if kept is not None and kept.username != request.user.get_username():
        kept = None
    way = _way(request, factors_of(user_id=request.user.pk))
    if way == "provider":
        return _ask(request, kept)
    factor = proof.AgainForm if "credential" in request.POST else proof.CodeForm
    form = (ReauthenticateForm if way == "password" else factor)(data=request.POST, user=request.user)
    if not form.is_valid():
        return proof.refused(_ask(request, kept, form), form)
    if way == "factor":
        form.save()
    step_up.note(request.session, at=request.now)
    keep(request, kept)
    in_the_middle = request.htmx or kept is not None
    return redirect("login-again" if in_the_middle else get_next_redirect_url(request) or came_from(request))


def _way(request: Asked, known: Factors) -> str:
    """How somebody proves that they are still there: `factor`, `password`, or `provider`, where their account is."""
    if known.usable:
        return "factor"
    return "password" if request.user.has_usable_password() else "provider"


def _ask(request: Asked, kept: SavedForm | None = None, form: Any = None, *, status: int = 401) -> HttpResponse:
    """The question, in a box beside the page (htmx) or as a page, with what was typed."""
    known, there = factors_of(user_id=request.user.pk), get_next_redirect_url(request) or came_from(request)
    way = _way(request, known)
    if way == "provider" and kept is not None:
        # Going there leaves the page behind, and what stands in it.
        keep(request, kept)
        back_to = reverse("login-again")
    else:
        back_to = there
    answer = page(
        request,
        "people/step_up_box.html" if request.htmx else "people/step_up.html",
        status=status,
        way=way,
        factors=known,
        kept=None if request.htmx else kept,
        form=form,
        next=there,
        provider=step_up_address(request, back_to) if way == "provider" else "",
        options=proof.passkey_options(request, proof.Purpose.AGAIN, request.user) if known.passkeys else "",
        in_box=bool(request.htmx),
    )
    if request.htmx:
        answer["HX-Retarget"], answer["HX-Reswap"] = "#again", "innerHTML"
    return answer
