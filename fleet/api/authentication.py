"""Authentication of API calls: the user and actor of a call. A call needs both a scope of the token and a right of the
user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from fleet.api.problems import Problem
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.people import TOKEN_SCOPES
from fleet.operations import clock, step_up
from fleet.projections.people import is_service, rights
from fleet.wording.say import say
from fleet.wording.times import API

if TYPE_CHECKING:
    from rest_framework.views import APIView


class Allowed(BasePermission):
    """Permission class: the token must have the scope that the method requires, and the user must have the right."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            return False
        scope = scope_of(view, str(request.method))
        missing = rights(request.user).missing(TOKEN_SCOPES[scope])
        if missing is not None:
            raise Problem("not-permitted", f"{request.user.get_username()} may not do that. {say(missing, API)}")
        if request.auth is not None and scope not in getattr(request.auth, "scopes", ()):
            raise Problem("not-permitted", f"The token does not have the scope `{scope}`.")
        return True


def scope_of(view: APIView | type[APIView], method: str) -> str:
    """Return the scope that a method of this view requires; `read` if the view states none."""
    return getattr(getattr(view, method.lower(), None), "needs", "") or "read"


def person_of(request: Request) -> User:
    """Return the user of a call. Raises `NotAuthenticated` for anonymous requests, which `Allowed` already rejects."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def actor_of(request: Request) -> Actor:
    """Return the actor of a call for the timeline, with the token and the request."""
    who = person_of(request)
    # The account was loaded with its token.
    made = actor.service if request.auth is not None and is_service(who) else actor.person
    return made(
        who,
        "api",
        token_name=str(getattr(request.auth, "name", "")),
        token=request.auth,
        request_id=request.META.get(REQUEST_ID, ""),
        address=request.META["REMOTE_ADDR"],
        # A token proves possession only, not the presence of its user.
        proved=request.auth is None and step_up.recent(step_up.last(request.session), now=clock.now()),
    )
