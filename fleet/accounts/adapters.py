"""The door of django-allauth as this installation has it: one throttle, ours; a device that is known once somebody is
all the way in; and secrets of second factors that no dump gives away.

Whatever lets people in calls these: a password, a passkey, a second factor, single sign-on.
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
from fleet.accounts.post_login import A_DAY, arrived, local_way, remembered
from fleet.accounts.verification import waits
from fleet.operations import clock, step_up


class AccountDoor(DefaultAccountAdapter):  # type: ignore[misc]
    """People of this installation: made by admins, never by signing up."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "incorrect_password": account_text.PASSWORD_WRONG,
        "username_password_mismatch": account_text.LOGIN_WRONG,
    }
    attempt: logins.Attempt | None = None

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Counts the attempt; whoever has to wait gets no answer about the password. Raises ValidationError
        `throttled`, whose `retry_after` is in seconds.
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
        """Where local accounts are switched off, only the break-glass account's goes on; nobody learns by a wrong
        password which that is.
        """
        if sign_on.password_counts(user.get_username()):
            answer: HttpResponse | None = super().pre_login(request, user, **hints)
            return answer
        return redirect(f"{resolve_url(settings.LOGIN_URL)}?out=passwords")

    def respond_user_inactive(self, request: HttpRequest, user: AbstractBaseUser) -> HttpResponse:
        return redirect("account_login")

    def post_login(self, request: HttpRequest, user: Any, **hints: Any) -> HttpResponse:
        """All the way in, second factor and all: from now on this browser is known."""
        # A session that began with a passkey's challenge was to last for minutes only.
        request.session.set_expiry(None)
        answer: HttpResponse = super().post_login(request, user, **hints)
        way = local_way(request, user)
        arrived(request, user, way)
        sign_on.note_break_glass(user, address=str(request.META.get("REMOTE_ADDR", "")), now=clock.now())
        step_up.note(request.session, at=clock.now())
        remembered(request, answer, user, way)
        return answer

    def add_message(self, *args: Any, **more: Any) -> None:
        """Pages say what was done in our own words."""

    def send_mail(self, *args: Any, **more: Any) -> None:
        """People are told by their channels; an account has no mail address that is used."""


class FactorDoor(DefaultMFAAdapter):  # type: ignore[misc]
    """Second factors; what they keep secret is encrypted at rest."""

    def encrypt(self, text: str) -> str:
        return factors.sealed(text)

    def decrypt(self, encrypted_text: str) -> str:
        return factors.opened(encrypted_text)
