"""Logging in, one door for pages and for Django's admin, by django-allauth's views: by name and password, by a second
factor behind them, by a passkey alone.
"""

from typing import Any

from allauth.account.utils import get_login_redirect_url, passthrough_next_redirect_url, perform_login
from allauth.account.views import LoginView
from allauth.mfa.base.views import AuthenticateView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from fleet.dashboard.again import in_a_box, keep
from fleet.dashboard.people import proof, sign_on
from fleet.dashboard.people.proof import Purpose
from fleet.dashboard.saved_form import forget_user, load_form, page_user
from fleet.operations import clock
from fleet.operations.people import logins, sessions
from fleet.projections.people.factors import factors_of
from fleet.wording.people import CHALLENGE_OVER, PASSKEY_WRONG

CHALLENGE_SECONDS = 300


class Login(LoginView):  # type: ignore[misc]
    """Name and password: on the page of the login, and where a session has ended, in a box beside a page (htmx) or on
    the page that a form leads to, with what was typed (`kept`). What else is needed, allauth's stages say.

    Nobody else goes on with what somebody typed: another person's password is refused, and nobody is logged in by it.
    """

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.kept = load_form(request.POST.get("kept", ""))
        # Who opened the page: it says so itself, or what it sent does.
        self.whose = page_user(request) if in_a_box(request) else self.kept.username if self.kept else ""
        self.goes_on = in_a_box(request) or "kept" in request.POST

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return redirect(get_login_redirect_url(request))
        answer: HttpResponse = super().get(request, *args, **kwargs)
        return answer

    def get_template_names(self) -> list[str]:
        if self.goes_on:
            return ["again/box.html" if in_a_box(self.request) else "again/page.html"]
        return [self.template_name]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "whose": self.whose, "kept": self.kept}

    def get_success_url(self) -> str | None:
        url: str | None = reverse("login-again") if self.goes_on else super().get_success_url()
        return url

    def form_invalid(self, form: Any) -> HttpResponse:
        return proof.refused(super().form_invalid(form), form, status=401 if self.goes_on else 200)

    def form_valid(self, form: Any) -> HttpResponse:
        if self.goes_on and form.user.get_username() != self.whose:
            other: HttpResponse = self.render_to_response(self.get_context_data(form=form, other=True), status=403)
            return other
        answer: HttpResponse = super().form_valid(form)
        keep(self.request, self.kept)
        return answer


@method_decorator(sensitive_post_parameters(), name="dispatch")
class SecondFactor(AuthenticateView):  # type: ignore[misc]
    """Behind the right password: a code, a recovery code, or a passkey of this very person."""

    form_class, webauthn_form_class = proof.CodeForm, proof.PasskeyForm

    def get_template_names(self) -> list[str]:
        return ["again/box.html" if in_a_box(self.request) else self.template_name]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        user = self.stage.login.user
        options = proof.passkey_options(self.request, Purpose.FACTOR, user)
        known = factors_of(user_id=user.pk)
        return {"form": self.form, "whose": user.get_username(), "factors": known, "options": options}

    def form_invalid(self, form: Any) -> HttpResponse:
        if form.has_error("code", "over"):
            self.request.session.flush()
            messages.error(self.request, CHALLENGE_OVER)
            return redirect("account_login")
        return proof.refused(super().form_invalid(form), form)


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
    form = proof.SignInForm(data=request.POST)
    if not form.is_valid():
        messages.error(request, PASSKEY_WRONG)
        return redirect(passthrough_next_redirect_url(request, reverse("account_login"), "next"))
    form.save()
    answer: HttpResponse = perform_login(request, form.cleaned_data["credential"].user)
    return answer


class Logout(LogoutView):
    """Nobody is remembered after it."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        by_provider = sign_on.by_sign_on(request)
        if request.session.session_key:
            sessions.left(session_key=request.session.session_key)
        answer = super().post(request, *args, **kwargs)
        if by_provider:
            # A form may lead nowhere else: the login page has a link to where one logs out at the provider.
            answer = redirect(f"{resolve_url(settings.LOGIN_URL)}?out=provider")
        forget_user(answer)
        return answer
