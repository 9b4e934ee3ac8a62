"""Somebody has come in, by whatever door: what is known of their session and their browser from now on."""

from collections.abc import Callable
from typing import Any, cast

from allauth.account.authentication import get_authentication_records
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, login, logout
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render

from fleet.accounts import logins, sessions, sign_on
from fleet.accounts.text import TROUBLES
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID
from fleet.domain.reasons import Refused
from fleet.domain.sign_on import TOLD_BY_PROXY, ToldByProxy
from fleet.operations import clock
from fleet.projections.people import is_service
from fleet.wording import say
from fleet.wording.times import page_reader

A_DAY = 86400


@receiver(user_logged_in)
def nobody_but_people(sender: Any, request: HttpRequest, user: User, **more: Any) -> None:
    """Behind whatever door somebody forgets to close: a service account has no session. Raises PermissionDenied."""
    if is_service(user):
        request.session.flush()
        raise PermissionDenied("A service account comes in by its tokens alone.")


def session_key(request: HttpRequest) -> str:
    """The key of this session, which exists from now on."""
    if request.session.session_key is None:
        request.session.save()
    return str(request.session.session_key)


def arrived(request: HttpRequest, user: User, way: str) -> None:
    """By this way: a code of `fleet.accounts.text.WAYS`."""
    sessions.begin(
        user=user,
        session_key=session_key(request),
        way=way,
        agent=request.headers.get("User-Agent", ""),
        address=str(request.META.get("REMOTE_ADDR", "")),
        now=clock.now(),
    )


def remembered(request: HttpRequest, answer: HttpResponseBase, user: User, way: str) -> None:
    """This browser is known from now on; its person is told of it where it was not."""
    address, request_id = str(request.META.get("REMOTE_ADDR", "")), request.META.get(REQUEST_ID, "")
    new = logins.know_device(
        user=user,
        device=request.COOKIES.get(settings.DEVICE_COOKIE_NAME, ""),
        now=clock.now(),
        actor=actor.person(user, "page", request_id=request_id, address=address),
        way=way,
        agent=request.headers.get("User-Agent", ""),
    )
    if new:
        answer.set_cookie(
            settings.DEVICE_COOKIE_NAME,
            new,
            max_age=logins.DEVICE_DAYS * A_DAY,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )


def local_way(request: HttpRequest, user: User) -> str:
    """How somebody came in who has an account of this installation's own."""
    methods = {record["method"]: record for record in get_authentication_records(request, user)}
    factor = methods.get("mfa")
    if factor is None:
        return "password"
    return "passkey" if factor.get("passwordless") else "password-factor"


# Logging in by a proxy in front that has done so already: whom the gateway believes it, this person it is.


class HeaderBackend(ModelBackend):
    """Sessions that a proxy in front speaks for, request by request."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:  # type: ignore[override]
        """Nobody by a password."""

    def get_user(self, user_id: Any) -> User | None:
        """Nobody, once no proxy is believed any more."""
        return super().get_user(user_id) if settings.PROXY_SIGN_IN.networks else None


class LastSeenMiddleware:
    """Notes that a session goes on: in memory, and of this request what is known anyhow."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self.get_response(request)
        session, person = getattr(request, "session", None), getattr(request, "_cached_user", None)
        if session is not None and person is not None and session.session_key and person.is_authenticated:
            agent, address = request.headers.get("User-Agent", ""), str(request.META["REMOTE_ADDR"])
            sessions.last_seen.note(session.session_key, sessions.SeenSession(person.pk, agent, address, clock.now()))
        return answer


class ProxyMiddleware:
    """Each request is of whom the proxy names. A session of theirs ends where it names nobody, or somebody else."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not settings.PROXY_SIGN_IN.networks:
            return self.get_response(request)
        told = cast(ToldByProxy | None, request.META.get(TOLD_BY_PROXY))
        by_proxy = _is_by_proxy(request)
        if told is None:
            if by_proxy:
                logout(request)
            return self.get_response(request)
        spoken_for = sign_on.spoken_for(request.session.get(sign_on.SAID_BY_PROXY), told)
        if by_proxy and spoken_for and request.user.is_authenticated:
            return self.get_response(request)
        try:
            person = sign_on.arrive_by_proxy(told, now=clock.now())
        except Refused as error:
            if by_proxy:
                # It was of somebody whom the proxy no longer names, or who may not come in any more.
                logout(request)
            title, advice, status = TROUBLES["not-permitted"]
            shown = {"title": title, "advice": advice, "said": say.say(error.reason, page_reader(clock.now()))}
            return render(request, "people/sign_on_trouble.html", shown, status=status)
        login(request, person, backend=sign_on.PROXY_BACKEND)
        request.session[sign_on.SAID_BY_PROXY] = sign_on.said_by(told)
        arrived(request, person, "proxy")
        answer = self.get_response(request)
        remembered(request, answer, person, "proxy")
        return answer

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        """End a session by proxy once no proxy is believed. After the check of the form's token: a form that finds the
        database away is kept only if that check was made.
        """
        if not settings.PROXY_SIGN_IN.networks and _is_by_proxy(request):
            logout(request)


def _is_by_proxy(request: HttpRequest) -> bool:
    return bool(request.session.get(BACKEND_SESSION_KEY) == sign_on.PROXY_BACKEND)
