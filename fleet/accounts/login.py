"""Sign-in pages: sign-in, second factors, and the page on which a signed-in user proves their identity again."""

import base64
from typing import Any

from allauth.account.forms import ReauthenticateForm
from allauth.account.utils import get_login_redirect_url, get_next_redirect_url, perform_login
from allauth.account.views import LoginView
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.views import AuthenticateView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LogoutView, redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from fleet.accounts import factors, sessions, single_sign_on, verification
from fleet.accounts.queries import Factors, factors_of
from fleet.accounts.single_sign_on import step_up_address
from fleet.accounts.text import CHALLENGE_OVER, PASSKEY_WRONG
from fleet.accounts.verification import Purpose
from fleet.dashboard.pages import Asked, action_view, came_from, done, page, read_view, require_reader
from fleet.dashboard.reauthentication import asked_again, box, in_a_box
from fleet.dashboard.saved_form import SavedForm, forget_user, load_form, page_user
from fleet.domain.reasons import Reason, Refused
from fleet.operations import clock, step_up

# Session key for the form that a user submitted when they had to prove their identity.
KEPT = "kept"


def keep(request: HttpRequest, kept: SavedForm | None) -> None:
    """Store a submitted form in the session while the user proves their identity. None stores nothing."""
    if kept is not None:
        request.session[KEPT] = kept.sealed


@require_safe
@require_reader
@asked_again
def back(request: Asked) -> HttpResponse:
    """Show the stored form after a user proved their identity. The user checks it and submits it again."""
    if request.htmx:
        return box(request, status=200)
    kept = load_form(request.session.pop(KEPT, ""))
    # A stored form is shown only to the user who filled it in.
    if kept is None or kept.username != request.user.get_username():
        return redirect("queue")
    return render(request, "again/send.html", {"kept": kept})


@sensitive_post_parameters()
@require_reader
def step_up_page(request: Asked) -> HttpResponse:
    """Ask a signed-in user to prove their identity again: by a second factor, by password if they have no factor, or at
    the single sign-on provider.
    """
    if request.method != "POST":
        return ask(request, status=200)
    kept = load_form(request.POST.get("kept", ""))
    if kept is not None and kept.username != request.user.get_username():
        kept = None
    way = _way(request, factors_of(user_id=request.user.pk))
    if way == "provider":
        return ask(request, kept)
    factor = verification.AgainForm if "credential" in request.POST else verification.CodeForm
    form = (ReauthenticateForm if way == "password" else factor)(data=request.POST, user=request.user)
    if not form.is_valid():
        return verification.refused(ask(request, kept, form), form)
    if way == "factor":
        form.save()
    step_up.note(request.session, at=request.now)
    keep(request, kept)
    in_the_middle = request.htmx or kept is not None
    return redirect("login-again" if in_the_middle else get_next_redirect_url(request) or came_from(request))


def _way(request: Asked, known: Factors) -> str:
    """Return how this user proves their identity again: `factor`, `password`, or `provider` (single sign-on)."""
    if known.usable:
        return "factor"
    return "password" if request.user.has_usable_password() else "provider"


def ask(request: Asked, kept: SavedForm | None = None, form: Any = None, *, status: int = 401) -> HttpResponse:
    """Return the page on which the user proves their identity: a box in the current page for htmx requests, else a full
    page. `kept` is a submitted form that is restored afterwards; `form` is a rejected proof.
    """
    known, there = factors_of(user_id=request.user.pk), get_next_redirect_url(request) or came_from(request)
    way, back_to = _way(request, known), there
    if way == "provider" and kept is not None:
        # The redirect to the provider leaves the page, so the session keeps the form.
        keep(request, kept)
        back_to = reverse("login-again")
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
        options=verification.passkey_options(request, Purpose.AGAIN, request.user) if known.passkeys else "",
        in_box=bool(request.htmx),
    )
    if request.htmx:
        answer["HX-Retarget"], answer["HX-Reswap"] = "#again", "innerHTML"
    return answer


# Sign-in for pages and Django's admin, by django-allauth's views: name and password, then a second factor; or a passkey
# alone.

CHALLENGE_SECONDS = 300


class Login(LoginView):  # type: ignore[misc]
    """Sign-in by name and password: on the sign-in page, or in a box or page with a stored form (`kept`) after a
    session ended. The stages of allauth then request a second factor.

    A stored form is shown only to the user who filled it in. The password of another user is rejected.
    """

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.kept = load_form(request.POST.get("kept", ""))
        # The user who opened the page: the page states them, or else the kept form.
        self.whose = page_user(request) if in_a_box(request) else self.kept.username if self.kept else ""
        self.is_resumed = in_a_box(request) or "kept" in request.POST

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return redirect(get_login_redirect_url(request))
        answer: HttpResponse = super().get(request, *args, **kwargs)
        return answer

    def get_template_names(self) -> list[str]:
        resumed = "again/box.html" if in_a_box(self.request) else "again/page.html"
        return [resumed if self.is_resumed else self.template_name]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "whose": self.whose, "kept": self.kept}

    def get_success_url(self) -> str | None:
        url: str | None = reverse("login-again") if self.is_resumed else super().get_success_url()
        return url

    def form_invalid(self, form: Any) -> HttpResponse:
        return verification.refused(super().form_invalid(form), form, status=401 if self.is_resumed else 200)

    def form_valid(self, form: Any) -> HttpResponse:
        if self.is_resumed and form.user.get_username() != self.whose:
            other: HttpResponse = self.render_to_response(self.get_context_data(form=form, other=True), status=403)
            return other
        answer: HttpResponse = super().form_valid(form)
        keep(self.request, self.kept)
        return answer


@method_decorator(sensitive_post_parameters(), name="dispatch")
class SecondFactor(AuthenticateView):  # type: ignore[misc]
    """Second step after the right password: a code, a recovery code, or a passkey of the same user."""

    form_class, webauthn_form_class = verification.CodeForm, verification.PasskeyForm

    def get_template_names(self) -> list[str]:
        return ["again/box.html" if in_a_box(self.request) else self.template_name]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        user = self.stage.login.user
        options = verification.passkey_options(self.request, Purpose.FACTOR, user)
        known = factors_of(user_id=user.pk)
        return {"form": self.form, "whose": user.get_username(), "factors": known, "options": options}

    def form_invalid(self, form: Any) -> HttpResponse:
        if form.has_error("code", "over"):
            self.request.session.flush()
            messages.error(self.request, CHALLENGE_OVER)
            return redirect("account_login")
        return verification.refused(super().form_invalid(form), form)


@never_cache
@require_http_methods(["GET", "POST"])
def passkey_login(request: HttpRequest) -> HttpResponse:
    """Return a passkey challenge (GET), or sign in with the signed challenge (POST). No name or password is needed."""
    if request.method == "GET":
        if request.session.is_empty():
            # Anonymous clients may request many challenges: the session lasts only for the time to answer one.
            request.session.set_expiry(CHALLENGE_SECONDS)
            sessions.forget_sessions(now=clock.now())
        return HttpResponse(verification.passkey_options(request, Purpose.SIGN_IN), content_type="application/json")
    form = verification.SignInForm(data=request.POST)
    if not form.is_valid():
        messages.error(request, PASSKEY_WRONG)
        return redirect_to_login(get_next_redirect_url(request) or "/")
    form.save()
    answer: HttpResponse = perform_login(request, form.cleaned_data["credential"].user)
    return answer


class Logout(LogoutView):
    """Sign-out. It also removes the cookie that identifies the user while the database is unavailable."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        by_provider = single_sign_on.by_sign_on(request)
        if request.session.session_key:
            sessions.left(session_key=request.session.session_key)
        answer = super().post(request, *args, **kwargs)
        if by_provider:
            # A form may not redirect to another site: the sign-in page links to the sign-out page of the provider.
            answer = redirect(f"{resolve_url(settings.LOGIN_URL)}?out=provider")
        forget_user(answer)
        return answer


# Account security: second factors, which only their user adds and removes.

# Session key: the secret of an authenticator app that is not added yet.
SECRET = "app_secret"  # noqa: S105


def signing_in_answer(request: Asked, /, **context: Any) -> HttpResponse:
    return page(request, "people/signing_in.html", factors=factors_of(user_id=request.user.pk), **context)


signing_in = read_view("you/signing-in/", "account-security")(signing_in_answer)


@asked_again
def app_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Show the secret of a new authenticator app as a QR code and as text. The app is added after its first right
    code.
    """
    if request.method == "GET":
        request.session[SECRET] = factors.new_secret()
    secret = request.session.get(SECRET, "")
    adapter = get_adapter()
    svg = adapter.build_totp_svg(adapter.build_totp_url(request.user, secret))
    picture = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return page(request, "people/app.html", secret=secret, picture=picture, **context)


app_page = read_view("you/signing-in/app/", "factor-app")(app_answer)


@sensitive_post_parameters()
@action_view("you/signing-in/app/add/", "factor-app-add", app_answer)
@asked_again
def add_app(request: Asked) -> HttpResponseBase:
    secret, code = request.session.get(SECRET, ""), request.POST.get("code", "")[:100]
    codes = factors.add_app(actor=request.actor, secret=secret, code=code, now=request.now)
    del request.session[SECRET]
    return _added(request, "Your app is asked for its code from now on.", codes)


@asked_again
def passkey_answer(request: Asked, /, **context: Any) -> HttpResponse:
    options = verification.passkey_options(request, Purpose.ADD, request.user)
    return page(request, "people/passkey.html", options=options, **context)


passkey_page = read_view("you/signing-in/passkey/", "factor-passkey")(passkey_answer)


@action_view("you/signing-in/passkey/add/", "factor-passkey-add", passkey_answer)
@asked_again
def add_passkey(request: Asked) -> HttpResponseBase:
    credential = verification.new_passkey(request, request.POST.get("credential", ""), request.user)
    if credential is None:
        raise Refused("validation", Reason("factor-passkey-wrong"))
    codes = factors.add_passkey(
        actor=request.actor, name=request.POST.get("name", ""), credential=credential, now=request.now
    )
    return _added(request, "You can sign in by this passkey from now on.", codes)


@action_view("you/signing-in/<int:factor_id>/remove/", "factor-remove", signing_in_answer)
@asked_again
def remove_factor(request: Asked, factor_id: int) -> HttpResponseBase:
    factors.remove(actor=request.actor, factor_id=factor_id, now=request.now)
    return done(request, "It is no second factor of yours any more.", "account-security")


@action_view("you/signing-in/codes/", "factor-codes", signing_in_answer)
@asked_again
def new_codes(request: Asked) -> HttpResponseBase:
    return signing_in_answer(request, new_codes=factors.new_codes(actor=request.actor, now=request.now))


def _added(request: Asked, said: str, codes: list[str]) -> HttpResponse:
    if codes:
        return signing_in_answer(request, new_codes=codes, said=said)
    return done(request, said, "account-security")
