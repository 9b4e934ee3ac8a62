"""Logging in, one door for pages and for Django's admin: who guesses passwords waits, and nobody goes round it."""

from typing import Any, cast

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login as Entering
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url

from fleet.dashboard import saved_form
from fleet.dashboard.people import sign_on
from fleet.operations.people import sessions


class LoginForm(AuthenticationForm):
    """A name and a password, looked at by the adapter, which counts attempts."""

    def clean(self) -> dict[str, Any]:
        # The view always gives one.
        request = cast(HttpRequest, self.request)
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        self.user_cache = get_adapter(request).authenticate(
            request, username=str(username or ""), password=str(password or "")
        )
        if self.user_cache is None:
            raise self.get_invalid_login_error()
        return self.cleaned_data


class Login(LoginView):
    """429 where somebody has to wait. The right password is one step: what else is needed, allauth's stages say."""

    authentication_form = LoginForm
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        throttled = [error for error in form.non_field_errors().as_data() if error.code == "throttled"]
        answer = self.render_to_response(
            self.get_context_data(form=form, throttled=throttled[0].message if throttled else "")
        )
        if throttled:
            answer.status_code = 429
            answer.headers["Retry-After"] = str((throttled[0].params or {})["retry_after"])
        return answer

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        entering = Entering(user=user, redirect_url=self.get_success_url())
        answer: HttpResponse = perform_password_login(self.request, {"username": user.get_username()}, entering)
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
        saved_form.forget_user(answer)
        return answer
