"""Logging in by a proxy in front that has done so already: whom the gateway believes it, this person it is."""

from collections.abc import Callable
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, login, logout
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render

from fleet.dashboard.people.arrival import arrived, remembered
from fleet.domain.reasons import Refused
from fleet.domain.sign_on import TOLD_BY_PROXY, ToldByProxy
from fleet.operations import clock
from fleet.operations.people import mapping, sign_on
from fleet.wording import say
from fleet.wording.sign_on import TROUBLES
from fleet.wording.times import page_reader


class HeaderBackend(ModelBackend):
    """Sessions that a proxy in front speaks for, request by request."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:  # type: ignore[override]
        """Nobody by a password."""

    def get_user(self, user_id: Any) -> User | None:
        """Nobody, once no proxy is believed any more."""
        return super().get_user(user_id) if settings.HEADER_LOGIN.networks else None


class ProxyMiddleware:
    """Each request is of whom the proxy names. A session of theirs ends where it names nobody, or somebody else."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not settings.HEADER_LOGIN.networks:
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
        login(request, person, backend=mapping.PROXY_BACKEND)
        request.session[sign_on.SAID_BY_PROXY] = sign_on.said_by(told)
        arrived(request, person, "proxy")
        answer = self.get_response(request)
        remembered(request, answer, person, "proxy")
        return answer

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        """End a session by proxy once no proxy is believed. After the check of the form's token: a form that finds the
        database away is kept only if that check was made.
        """
        if not settings.HEADER_LOGIN.networks and _is_by_proxy(request):
            logout(request)


def _is_by_proxy(request: HttpRequest) -> bool:
    return bool(request.session.get(BACKEND_SESSION_KEY) == mapping.PROXY_BACKEND)
