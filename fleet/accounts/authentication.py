"""Token authentication for REST framework."""

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from fleet.accounts import tokens
from fleet.api.problems import Problem
from fleet.domain.people import TOKEN_SCOPES
from fleet.domain.reasons import Refused
from fleet.operations import clock
from fleet.wording.say import say
from fleet.wording.times import API


class TokenAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer dd_…`. `request.auth` is the token, and None for a session."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip()
        # A malformed token needs no database query.
        well_formed = bool(token) and token.isascii() and token.isprintable()
        try:
            address = str(request.META["REMOTE_ADDR"])
            identity = tokens.person_of_token(token=token, now=clock.now(), address=address) if well_formed else None
        except Refused as error:
            raise Problem("not-permitted", say(error.reason, API)) from error
        if identity is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.")
        return identity

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="drydock"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Description of the token scheme in the OpenAPI document."""

    target_class = "fleet.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": f"Scopes: {', '.join(TOKEN_SCOPES)}."}
