"""Logging in, one door for pages and for Django's admin: who guesses passwords waits."""

import math
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from fleet.dashboard import visitor
from fleet.operations.people import logins
from fleet.wording import people, times

A_DAY = 86400


class LoginForm(AuthenticationForm):
    """Counts attempts; whoever has to wait gets no answer about the password."""

    new_device = ""

    def clean(self) -> dict[str, Any]:
        # The view always gives one.
        request = cast(HttpRequest, self.request)
        username = str(self.cleaned_data.get("username") or "")
        address, now = str(request.META.get("REMOTE_ADDR", "")), timezone.now()
        device = request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")
        attempt = logins.begin(username=username, address=address, device=device, now=now)
        if attempt.wait is None:
            raise ValidationError(people.LOGIN_REFUSED, code="throttled")
        if attempt.wait > 0:
            self.retry_after = math.ceil(attempt.wait)
            shown = times.duration(self.retry_after)
            raise ValidationError(people.LOGIN_WAITS.format(wait=shown), code="throttled")
        found = super().clean()
        # Nobody is there where a name or a password was not even sent.
        if self.get_user() is not None:
            self.new_device = logins.succeeded(attempt, user=self.get_user(), address=address, now=now)
        return found or {}


class Login(LoginView):
    """429 where somebody has to wait."""

    authentication_form = LoginForm
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        throttled = [error for error in form.non_field_errors().as_data() if error.code == "throttled"]
        answer = self.render_to_response(
            self.get_context_data(form=form, throttled=throttled[0].message if throttled else "")
        )
        if throttled:
            answer.status_code = 429
            answer.headers["Retry-After"] = str(getattr(form, "retry_after", A_DAY))
        return answer

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_valid(form)
        if isinstance(form, LoginForm) and form.new_device:
            answer.set_cookie(
                settings.DEVICE_COOKIE_NAME,
                form.new_device,
                max_age=logins.DEVICE_DAYS * A_DAY,
                secure=settings.SESSION_COOKIE_SECURE,
                httponly=True,
                samesite="Lax",
            )
        return answer


class Logout(LogoutView):
    """Nobody is remembered after it."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        answer = super().post(request, *args, **kwargs)
        visitor.forget(answer)
        return answer
