"""Who calls, and what the caller may do: a token's scopes beside the rights of its person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import User
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from fleet.accounts import tokens
from fleet.accounts.queries import is_service, rights
from fleet.api.problems import Problem
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.reasons import Refused
from fleet.operations import clock, step_up
from fleet.wording.say import say
from fleet.wording.times import API

if TYPE_CHECKING:
    from rest_framework.views import APIView


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer dd_…`. `request.auth` is the token then, and None for a session."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip()
        # What is no token at all needs no look into the database.
        sane = bool(token) and token.isascii() and token.isprintable()
        try:
            address = str(request.META["REMOTE_ADDR"])
            found = tokens.person_of_token(token=token, now=clock.now(), address=address) if sane else None
        except Refused as error:
            raise Problem("not-permitted", say(error.reason, API)) from error
        if found is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.")
        return found

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="drydock"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes it."""

    target_class = "fleet.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": f"Scopes: {', '.join(tokens.SCOPES)}."}


class Allowed(BasePermission):
    """Each method is described with the scope that it needs; a token must have it, and the person the right."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            return False
        scope = scope_of(view, str(request.method))
        missing = rights(request.user).missing(tokens.SCOPES[scope])
        if missing is not None:
            raise Problem("not-permitted", f"{request.user.get_username()} may not do that. {say(missing, API)}")
        if request.auth is not None and scope not in getattr(request.auth, "scopes", ()):
            raise Problem("not-permitted", f"The token does not have the scope `{scope}`.")
        return True


def scope_of(view: APIView | type[APIView], method: str) -> str:
    """The scope that a method of this call needs: `read` where it names none."""
    return getattr(getattr(view, method.lower(), None), "needs", "") or "read"


def person_of(request: Request) -> User:
    """Who calls. `Allowed` has let nobody else through."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def actor_of(request: Request) -> Actor:
    """Who acts by this call, through which token, by which request."""
    who = person_of(request)
    # Asked of the database with its token.
    made = actor.service if request.auth is not None and is_service(who) else actor.person
    return made(
        who,
        "api",
        token_name=token_name(request),
        token=request.auth,
        request_id=request.META.get(REQUEST_ID, ""),
        address=request.META["REMOTE_ADDR"],
        # A token proves that somebody has it, and no more.
        proved=request.auth is None and step_up.recent(step_up.last(request.session), now=clock.now()),
    )


def token_name(request: Request) -> str:
    """The name of the token that the request carried; empty for a session."""
    return str(getattr(request.auth, "name", ""))
