"""Adapters of django-allauth, which every sign-in method calls: Drydock's own throttle, known devices, encrypted
secrets of second factors.
"""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url

from fleet.accounts import factors, logins, sign_on
from fleet.accounts import text as account_text
from fleet.accounts.post_login import A_DAY, local_sign_in_method, record_session, remember_device
from fleet.accounts.verification import waits
from fleet.operations import clock, step_up


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Local accounts. Administrators create them; sign-up is disabled."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "incorrect_password": account_text.PASSWORD_WRONG,
        "username_password_mismatch": account_text.LOGIN_WRONG,
    }
    attempt: logins.Attempt | None = None

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt. Raises ValidationError `throttled`, with `retry_after` in seconds, before the password is
        checked.
        """
        self.attempt = logins.begin(
            username=str(credentials.get("username") or ""),
            address=str(request.META.get("REMOTE_ADDR", "")),
            device=request.COOKIES.get(settings.DEVICE_COOKIE_NAME, ""),
            now=clock.now(),
        )
        wait = self.attempt.wait
        if wait is None:
            raise ValidationError(account_text.LOGIN_REFUSED, code="throttled", params={"retry_after": A_DAY})
        if wait > 0:
            raise waits(wait)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AbstractBaseUser | None:
        user: AbstractBaseUser | None = super().authenticate(request, **credentials)
        if isinstance(user, User) and self.attempt is not None:
            logins.succeeded(self.attempt, user=user, address=str(request.META.get("REMOTE_ADDR", "")))
        return user

    def pre_login(self, request: HttpRequest, user: Any, **hints: Any) -> HttpResponse | None:
        """Refuse a local account if these are disabled, unless it is the emergency account. The password was right: a
        wrong one does not reveal which account that is.
        """
        if sign_on.password_counts(user.get_username()):
            answer: HttpResponse | None = super().pre_login(request, user, **hints)
            return answer
        return redirect(f"{resolve_url(settings.LOGIN_URL)}?out=passwords")

    def respond_user_inactive(self, request: HttpRequest, user: AbstractBaseUser) -> HttpResponse:
        return redirect("account_login")

    def post_login(self, request: HttpRequest, user: Any, **hints: Any) -> HttpResponse:
        """Record a completed sign-in, including the second factor."""
        # A session that began with a passkey challenge had an expiry of a few minutes.
        request.session.set_expiry(None)
        answer: HttpResponse = super().post_login(request, user, **hints)
        way = local_sign_in_method(request, user)
        record_session(request, user, way)
        sign_on.record_emergency_sign_in(user, address=str(request.META.get("REMOTE_ADDR", "")), now=clock.now())
        step_up.note(request.session, at=clock.now())
        remember_device(request, answer, user, way)
        return answer

    def add_message(self, *args: Any, **more: Any) -> None:
        """Show no messages of allauth: pages have their own."""

    def send_mail(self, *args: Any, **more: Any) -> None:
        """Send no mail: users are notified by their channels."""


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Second factors, whose secrets are encrypted at rest."""

    def encrypt(self, text: str) -> str:
        return factors.sealed(text)

    def decrypt(self, encrypted_text: str) -> str:
        return factors.opened(encrypted_text)
