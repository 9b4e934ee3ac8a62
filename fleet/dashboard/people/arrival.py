"""Somebody has come in, by whatever door: what is known of their session from now on."""

from allauth.account.internal.flows.login import get_authentication_records
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone

from fleet.operations.people import sessions


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
        now=timezone.now(),
    )


def local_way(request: HttpRequest, user: User) -> str:
    """How somebody came in who has an account of this installation's own."""
    methods = {record["method"]: record for record in get_authentication_records(request, user)}
    factor = methods.get("mfa")
    if factor is None:
        return "password"
    return "passkey" if factor.get("passwordless") else "password-factor"
