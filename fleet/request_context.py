"""Context of a request: its id and client address, for each entry and log line written during it, and the visibility of
its user.
"""

from collections.abc import Callable
from contextlib import nullcontext
from ipaddress import ip_network
from typing import cast

import structlog
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from fleet.domain.actor import REQUEST_ID
from fleet.domain.addresses import address_of
from fleet.domain.people import SENT_WITH, Access
from fleet.domain.pseudonyms import pseudonym
from fleet.domain.trace import CALL, Call, trace_of
from fleet.operations.timeline.entries import asked_by
from fleet.projections import visibility
from fleet.projections.people import rights
from fleet.projections.request_cache import request_cache


class AskedMiddleware:
    """Middleware that adds `X-Request-ID` to the response: the caller's id if it is valid, else a new one. It also
    records the user and route for the access log.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.proxies = [ip_network(proxy, strict=False) for proxy in settings.TRUSTED_PROXIES]

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        address = address_of(
            str(request.META.get("REMOTE_ADDR") or ""), request.headers.get("X-Forwarded-For", ""), self.proxies
        )
        # The gateway has read the headers; without it, as where Django's own server serves, that is done here.
        call = request.META.setdefault(
            CALL, Call(trace_of(request.headers.get("X-Request-ID", ""), request.headers.get("traceparent", "")))
        )
        # The peer as everything below us should know it, the throttle of the login among them.
        request.META["REMOTE_ADDR"] = address
        request.META[REQUEST_ID] = call.trace.request_id
        with asked_by(call.trace, address), structlog.contextvars.bound_contextvars(**call.trace.words):
            answer = self.get_response(request)
        answer.headers["X-Request-ID"] = call.trace.request_id
        note(call, request)
        return answer


class VisibilityMiddleware:
    """Middleware that resets the thread's visibility before each request. Pages and API set it when they have
    identified the user.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # A user who writes and then reads must see the change.
        reads = request.method in ("GET", "HEAD")
        with visibility.reading_as(None), request_cache() if reads else nullcontext():
            answer = self.get_response(request)
            if isinstance(answer, StreamingHttpResponse):
                if (access := access_of(request)) is not None:
                    request.META[SENT_WITH] = access
                answer.streaming_content = visibility.as_current_reader(answer.streaming_content)  # type: ignore[arg-type]
        return answer


def asker(request: HttpRequest) -> User | None:
    """Return the user of the request; None if it has not been loaded. No query."""
    # Django loads the user of a session on first use, and caches it here; the API does so with those of tokens.
    known = (getattr(request, "_cached_user", None), request.__dict__.get("user"))
    # Not `isinstance`, which would make Django load the user.
    return next((cast(User, one) for one in known if issubclass(type(one), AbstractBaseUser)), None)


def access_of(request: HttpRequest) -> Access | None:
    """Return the access with which a response is sent; None if no user was loaded. May query the user's rights."""
    person, token = asker(request), getattr(request, "auth", None)
    if person is None:
        return None
    scopes = getattr(token, "scopes", None)
    return Access(person.pk, rights(person), None if scopes is None else tuple(scopes))


def note(call: Call, request: HttpRequest) -> None:
    """Record the URL pattern, and the user if already loaded, for the access log. No query."""
    found = request.resolver_match
    if found is not None:
        call.route = f"/{found.route}"
    elif request.path.startswith(settings.STATIC_URL):
        call.route = settings.STATIC_URL
    person = asker(request)
    if person is not None:
        # Logs are stored outside of Drydock, where a user's name could not be erased.
        call.person = pseudonym(person.pk)
    call.token = str(getattr(getattr(request, "auth", None), "name", ""))
