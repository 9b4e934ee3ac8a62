"""Somebody has come in, by whatever door: what is known of their session and their browser from now on."""

from typing import Any

from allauth.account.authentication import get_authentication_records
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID
from fleet.operations import clock
from fleet.operations.people import logins, sessions
from fleet.projections.people import is_service

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
    """By this way: a code of `fleet.wording.sessions.WAYS`."""
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
