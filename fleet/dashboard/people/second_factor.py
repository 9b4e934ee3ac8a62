"""Asked for more than a password: at the login, by a passkey alone, and again in the middle of a session."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.internal.decorators import login_stage_required
from allauth.account.internal.stagekit import clear_login
from allauth.account.models import Login as Entering
from allauth.account.stages import LoginStageController
from allauth.mfa.stages import AuthenticateStage
from allauth.mfa.webauthn.internal.flows import perform_passwordless_login
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from fleet.dashboard.pages import Asked, came_from, page, reader
from fleet.dashboard.people import proof
from fleet.dashboard.people.proof import Purpose
from fleet.dashboard.people.sign_on import step_up_address
from fleet.dashboard.saved_form import SavedForm, load_form, save_form
from fleet.domain.approvals.guards import Need
from fleet.domain.reasons import Refused
from fleet.operations import clock
from fleet.operations.people import logins, step_up
from fleet.projections.people.factors import Factors, factors_of
from fleet.wording.people import PASSKEY_WRONG

P = ParamSpec("P")
CHALLENGE_SECONDS = 300
# In the session: what somebody was about to send when they went to their provider.
KEPT = "kept_at_provider"


def stage_of(request: HttpRequest) -> Any:
    """The login that waits for its second factor in this browser; None where there is none."""
    return None if request.user.is_authenticated else LoginStageController.enter(request, AuthenticateStage.key)


def challenge_of(stage: Any) -> str:
    return f"{stage.login.user.pk} {stage.login.initiated_at}"


def throttled(answer: HttpResponse, found: proof.Proof) -> HttpResponse:
    if found.retry_after:
        answer.status_code = 429
        answer.headers["Retry-After"] = str(found.retry_after)
    return answer


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@login_stage_required(stage=AuthenticateStage.key, redirect_urlname="login")  # type: ignore[untyped-decorator]
def at_login(request: HttpRequest) -> HttpResponse:
    """Behind the right password: a code, a recovery code, or a passkey of this very person."""
    stage = stage_of(request)
    user, found = stage.login.user, proof.Proof(True)
    if request.method == "POST":
        found = proof.factor(request, user, challenge=challenge_of(stage))
        if found.right:
            answer: HttpResponse = stage.exit()
            return answer
        if found.over:
            clear_login(request)
            messages.error(request, found.said)
            return redirect("login")
    context = {
        "factors": factors_of(user_id=user.pk),
        "said": found.said,
        "options": proof.passkey_options(request, Purpose.FACTOR, user),
    }
    answer = render(request, "registration/second_factor.html", context, status=200 if found.right else 401)
    return throttled(answer, found)


@never_cache
@require_http_methods(["GET", "POST"])
def passkey_login(request: HttpRequest) -> HttpResponse:
    """What a passkey has to sign; and the login by it, which needs neither a name nor a password."""
    if request.method == "GET":
        if request.session.is_empty():
            # Of a stranger, who may ask a million times: it lasts as long as it takes to touch a key.
            request.session.set_expiry(CHALLENGE_SECONDS)
            logins.forget_sessions(now=clock.now())
        return HttpResponse(proof.passkey_options(request, Purpose.SIGN_IN), content_type="application/json")
    found = proof.passkey(request, request.POST.get("credential", ""), Purpose.SIGN_IN)
    if found is None:
        messages.error(request, PASSKEY_WRONG)
        return redirect(f"{reverse('login')}?{urlencode({'next': _there(request)})}")
    answer: HttpResponse = perform_passwordless_login(
        request, found, Entering(user=found.user, redirect_url=_there(request))
    )
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


def way_of(request: Asked, known: Factors) -> str:
    """How somebody proves that they are still there: `factor`, `password`, or `provider`, where their account is."""
    if known.usable:
        return "factor"
    return "password" if request.user.has_usable_password() else "provider"


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
        kept = None if request.htmx else save_form(request, request.user.get_username())
        return asks(request, kept=kept)

    return guarded


def asks(request: Asked, kept: SavedForm | None, found: proof.Proof | None = None) -> HttpResponse:
    """The question, in a box beside the page (htmx) or as a page with what was typed (plain)."""
    known = factors_of(user_id=request.user.pk)
    way, there = way_of(request, known), came_from(request)
    back = there
    if way == "provider" and (typed := kept or save_form(request, request.user.get_username())) is not None:
        # Going there leaves the page behind, and what stands in it.
        request.session[KEPT], back = typed.sealed, f"{reverse('step-up')}?{urlencode({'next': there})}"
    context = {
        "way": way,
        "factors": known,
        "kept": kept,
        "said": found.said if found else "",
        "next": there,
        "provider": step_up_address(request, back) if way == "provider" else "",
        "options": proof.passkey_options(request, Purpose.AGAIN, request.user) if known.passkeys else "",
        "in_box": bool(request.htmx),
    }
    template = "people/step_up_box.html" if request.htmx else "people/step_up_kept.html"
    answer = render(request, template, context, status=401)
    if request.htmx:
        answer["HX-Retarget"], answer["HX-Reswap"] = "#again", "innerHTML"
    return throttled(answer, found) if found else answer


@sensitive_post_parameters()
@reader
def step_up_page(request: Asked) -> HttpResponse:
    """Asked again: by a second factor, by the password where there is none, or at the provider."""
    if request.method == "GET" and step_up.recent(step_up.last(request.session), now=request.now):
        typed = load_form(request.session.pop(KEPT, ""))
        if typed is not None and typed.username == request.user.get_username():
            return render(request, "again/send.html", {"kept": typed})
    known = factors_of(user_id=request.user.pk)
    way, found = way_of(request, known), proof.RIGHT
    if request.method == "POST":
        found = prove_again(request, way)
        kept = load_form(request.POST.get("kept", ""))
        # Nobody else goes on with what somebody typed.
        kept = kept if kept is not None and kept.username == request.user.get_username() else None
        if found.right and request.htmx:
            return render(request, "people/step_up_done.html", {"token": get_token(request)})
        if found.right:
            return render(request, "again/send.html", {"kept": kept}) if kept else redirect(_there(request))
        if request.htmx or kept is not None:
            return asks(request, kept, found)
    answer = page(
        request,
        "people/step_up.html",
        status=200 if found.right else 401,
        way=way,
        factors=known,
        said=found.said,
        next=_there(request),
        provider=step_up_address(request, _there(request)) if way == "provider" else "",
        options=proof.passkey_options(request, Purpose.AGAIN, request.user) if known.passkeys else "",
    )
    return throttled(answer, found)


def prove_again(request: Asked, way: str) -> proof.Proof:
    """What the form sent, looked at; where it is right, this session counts as asked again."""
    if way == "provider":
        return proof.Proof(False, "Your provider asks you.")
    if way == "factor":
        # One challenge is what this session asks until somebody answers.
        challenge = f"{request.user.pk} {request.session.session_key}"
        found = proof.factor(request, request.user, challenge=challenge, again=True)
    else:
        found = proof.password(request, request.user)
    if found.right:
        step_up.note(request.session, at=request.now)
    return found


def _there(request: HttpRequest) -> str:
    """Where somebody wanted to go, if that is here."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    safe: bool = bool(wanted) and wanted.startswith("/") and get_adapter(request).is_safe_url(wanted)
    return wanted if safe else reverse("queue")
