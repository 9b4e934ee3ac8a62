"""Adapters that connect django-allauth to Drydock, the steps after each sign-in, and sign-in by a reverse proxy."""

from collections.abc import Callable
from typing import Any, cast

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, login, logout
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied, ValidationError
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url

from fleet.accounts import factors, logins, sessions, sign_on
from fleet.accounts import text as account_text
from fleet.accounts.text import TROUBLES
from fleet.accounts.verification import actor_of, waits
from fleet.domain.reasons import Refused
from fleet.domain.sign_on import TOLD_BY_PROXY, ToldByProxy
from fleet.operations import clock, step_up
from fleet.projections.people import is_service
from fleet.wording import say
from fleet.wording.times import page_reader

A_DAY = 86400


@receiver(user_logged_in)
def refuse_service_accounts(sender: Any, request: HttpRequest, user: User, **more: Any) -> None:
    """Raise PermissionDenied if a service account signs in: service accounts have no browser sessions."""
    if is_service(user):
        request.session.flush()
        raise PermissionDenied("A service account authenticates by tokens only.")


def session_key(request: HttpRequest) -> str:
    """Return the key of the session of this request. Create the session if there is none."""
    if request.session.session_key is None:
        request.session.save()
    return str(request.session.session_key)


def _place(request: HttpRequest) -> dict[str, str]:
    """Return from where a request comes: the browser (its User-Agent header) and the address."""
    agent, address = request.headers.get("User-Agent", ""), str(request.META.get("REMOTE_ADDR", ""))
    return {"agent": agent, "address": address}


def _device(request: HttpRequest) -> str:
    """Return the secret in the device cookie of the browser, or an empty string."""
    return request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")


def record_session(request: HttpRequest, user: User, way: str) -> None:
    """Record the new browser session. `way` is the sign-in method, a code of `fleet.accounts.text.WAYS`."""
    sessions.begin(user=user, session_key=session_key(request), way=way, now=clock.now(), **_place(request))


def remember_device(request: HttpRequest, answer: HttpResponseBase, user: User, way: str) -> None:
    """Record this browser as a known device of the user and set its cookie. The user is notified of a new device."""
    who, agent = actor_of(request, user), _place(request)["agent"]
    new = logins.know_device(user=user, device=_device(request), now=clock.now(), actor=who, way=way, agent=agent)
    if new:
        age, secure = logins.DEVICE_DAYS * A_DAY, settings.SESSION_COOKIE_SECURE
        answer.set_cookie(settings.DEVICE_COOKIE_NAME, new, age, secure=secure, httponly=True, samesite="Lax")


def trouble(request: HttpRequest, code: str, *, said: str = "") -> HttpResponse:
    """Return the page for a failed sign-in. `code` is a key of `TROUBLES`, which explains the failure and its remedy;
    `said` is a sentence about this failure, from the provider or the proxy.
    """
    title, advice, status = TROUBLES[code]
    context = {"title": title, "advice": advice, "said": said, "code": code}
    answer = render(request, "people/sign_on_trouble.html", context, status=status)
    if status == 503:
        answer["Retry-After"] = "10"
    return answer


def local_sign_in_method(request: HttpRequest, user: User) -> str:
    """Return the code of the method by which a local account signed in: password, second factor or passkey."""
    methods = {record["method"]: record for record in get_authentication_records(request, user)}
    factor = methods.get("mfa")
    if factor is None:
        return "password"
    return "passkey" if factor.get("passwordless") else "password-factor"


# Adapters of django-allauth, which every sign-in method calls.


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Adapter of django-allauth for local accounts. Only administrators create accounts; sign-up is disabled."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "incorrect_password": account_text.PASSWORD_WRONG,
        "username_password_mismatch": account_text.LOGIN_WRONG,
    }
    attempt: logins.Attempt | None = None

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the sign-in attempt before the password is checked. Raises ValidationError `throttled` with
        `retry_after` in seconds if the user must wait.
        """
        name, address = str(credentials.get("username") or ""), _place(request)["address"]
        self.attempt = logins.begin(username=name, address=address, device=_device(request), now=clock.now())
        if self.attempt.wait is None:
            raise ValidationError(account_text.LOGIN_REFUSED, code="throttled", params={"retry_after": A_DAY})
        if self.attempt.wait > 0:
            raise waits(self.attempt.wait)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AbstractBaseUser | None:
        user: AbstractBaseUser | None = super().authenticate(request, **credentials)
        if isinstance(user, User) and self.attempt is not None:
            logins.succeeded(self.attempt, user=user, address=_place(request)["address"])
        return user

    def pre_login(self, request: HttpRequest, user: Any, **hints: Any) -> HttpResponse | None:
        """Refuse a local account if local passwords are disabled, except for the emergency account. This runs after the
        password check, so that a wrong password does not reveal the name of the emergency account.
        """
        if sign_on.password_counts(user.get_username()):
            answer: HttpResponse | None = super().pre_login(request, user, **hints)
            return answer
        return redirect(f"{resolve_url(settings.LOGIN_URL)}?out=passwords")

    def respond_user_inactive(self, request: HttpRequest, user: AbstractBaseUser) -> HttpResponse:
        return redirect("account_login")

    def post_login(self, request: HttpRequest, user: Any, **hints: Any) -> HttpResponse:
        """Record a completed sign-in, after the second factor. Return the redirect."""
        # A session that began with a passkey challenge had an expiry of a few minutes.
        request.session.set_expiry(None)
        answer: HttpResponse = super().post_login(request, user, **hints)
        way = local_sign_in_method(request, user)
        record_session(request, user, way)
        sign_on.record_emergency_sign_in(user, address=_place(request)["address"], now=clock.now())
        step_up.note(request.session, at=clock.now())
        remember_device(request, answer, user, way)
        return answer

    def add_message(self, *args: Any, **more: Any) -> None:
        """Discard messages of allauth: the pages of Drydock show their own."""

    def send_mail(self, *args: Any, **more: Any) -> None:
        """Send no mail: Drydock notifies users through their notification channels."""


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Adapter of django-allauth that encrypts the secrets of second factors in the database."""

    def encrypt(self, text: str) -> str:
        return factors.sealed(text)

    def decrypt(self, encrypted_text: str) -> str:
        return factors.opened(encrypted_text)


# Sign-in by a reverse proxy.


class HeaderBackend(ModelBackend):
    """Authentication backend for sessions from a reverse proxy, whose headers must confirm the user in each request."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:  # type: ignore[override]
        """Reject every password."""

    def get_user(self, user_id: Any) -> User | None:
        """Return the user of a session, or None if no proxy is configured any more."""
        return super().get_user(user_id) if settings.PROXY_SIGN_IN.networks else None


class LastSeenMiddleware:
    """Middleware that records in memory when each session was last seen."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self.get_response(request)
        session, person = getattr(request, "session", None), getattr(request, "_cached_user", None)
        if session is not None and person is not None and session.session_key and person.is_authenticated:
            sessions.last_seen.note(session.session_key, user_id=person.pk, now=clock.now(), **_place(request))
        return answer


class ProxyMiddleware:
    """Middleware that signs in the user whom the reverse proxy names. It ends the session when the proxy names no user
    or another user.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not settings.PROXY_SIGN_IN.networks:
            return self.get_response(request)
        statement = cast(ToldByProxy | None, request.META.get(TOLD_BY_PROXY))
        by_proxy = _is_by_proxy(request)
        if statement is None:
            if by_proxy:
                logout(request)
            return self.get_response(request)
        is_confirmed = sign_on.is_confirmed_by_proxy(request.session.get(sign_on.SAID_BY_PROXY), statement)
        if by_proxy and is_confirmed and request.user.is_authenticated:
            return self.get_response(request)
        try:
            person = sign_on.arrive_by_proxy(statement, now=clock.now())
        except Refused as error:
            if by_proxy:
                # The proxy no longer names this user, or they no longer have access.
                logout(request)
            return trouble(request, "not-permitted", said=say.say(error.reason, page_reader(clock.now())))
        login(request, person, backend=sign_on.PROXY_BACKEND)
        request.session[sign_on.SAID_BY_PROXY] = sign_on.proxy_statement(statement)
        record_session(request, person, "proxy")
        answer = self.get_response(request)
        remember_device(request, answer, person, "proxy")
        return answer

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        """End a session that a proxy began if no proxy is configured any more. This runs after the CSRF check, because
        a submitted form is stored during a database failure only after that check.
        """
        if not settings.PROXY_SIGN_IN.networks and _is_by_proxy(request):
            logout(request)


def _is_by_proxy(request: HttpRequest) -> bool:
    return bool(request.session.get(BACKEND_SESSION_KEY) == sign_on.PROXY_BACKEND)
