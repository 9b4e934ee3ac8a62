"""Logging in, one door for pages and for Django's admin: who guesses passwords waits."""

import math
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from fleet.operations.people import logins
from fleet.wording import times


class LoginForm(AuthenticationForm):
    """Counts attempts by name and address; over the limit the password is not even looked at."""

    def clean(self) -> dict[str, Any]:
        request: HttpRequest | None = self.request
        username = str(self.cleaned_data.get("username") or "")
        address = str(request.META.get("REMOTE_ADDR", "")) if request else ""
        wait = logins.begin(username=username, address=address, now=timezone.now())
        if wait > 0:
            shown = times.duration(math.ceil(wait))
            raise ValidationError(f"Too many attempts failed. Wait {shown}, then try again.", code="throttled")
        found = super().clean()
        logins.succeeded(username=username, address=address)
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
        answer.status_code = 429 if throttled else 200
        return answer
