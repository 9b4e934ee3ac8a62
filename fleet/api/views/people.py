"""Oneself, one's tokens, and for admins everybody."""

from datetime import timedelta
from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import actor_of, person_of
from fleet.api.calls import Call, describe
from fleet.api.problems import Problem
from fleet.api.shapes.derive import page_of
from fleet.api.shapes.people import (
    ChangePersonSerializer,
    ChoicesSerializer,
    MakePersonSerializer,
    MakeTokenSerializer,
    MeShape,
    NewPerson,
    NewPersonShape,
    NewToken,
    NewTokenShape,
    Password,
    PasswordShape,
    PersonShape,
    TokenShape,
)
from fleet.operations.people import accounts, profiles, tokens
from fleet.projections import people as shown

NAME = OpenApiParameter("q", str, description="Part of a name.")
WITH_ENDED = OpenApiParameter("ended", bool, description="`true`: those that were ended, too.")


def me_of(request: Request) -> shown.Me:
    """Who calls."""
    token: Any = request.auth
    return shown.me(user_id=person_of(request).pk, token=token)


class Me(Call):
    needs = {"PATCH": "read"}

    @describe("get_me", "Who calls, and what they may", answer=MeShape, problems=None)
    def get(self, request: Request) -> Response:
        return self.shown(MeShape, me_of(request))

    @describe("change_me", "One's own time zone and shortcuts", answer=MeShape, body=ChoicesSerializer, problems=(422,))
    def patch(self, request: Request) -> Response:
        wanted = self.read(ChoicesSerializer, request)
        profiles.choose(actor=actor_of(request), now=self.now, **wanted)
        return self.shown(MeShape, me_of(request))


class Tokens(Call):
    needs = {"POST": "read"}

    @describe(
        "list_tokens",
        "One's own tokens, newest first",
        answer=page_of(TokenShape),
        problems=(422,),
        parameters=[WITH_ENDED],
    )
    def get(self, request: Request) -> Response:
        with_ended = request.query_params.get("ended", "false").lower() == "true"
        rows = shown.tokens(username=person_of(request).get_username(), with_ended=with_ended)
        return self.all_of(TokenShape, rows)

    @describe(
        "make_token",
        "A token for oneself, shown this once",
        answer=NewTokenShape,
        status=201,
        body=MakeTokenSerializer,
        problems=(422,),
        description="It may no more than its person, and no more and no longer than the token that asks for it.",
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(MakeTokenSerializer, request)
        carried: Any = request.auth
        row, plain = tokens.make_own_token(
            actor=actor_of(request),
            name=wanted["name"],
            scopes=wanted["scopes"],
            expires_in=timedelta(seconds=wanted["expires_in_seconds"]),
            now=self.now,
            carried=carried,
        )
        rows = shown.tokens(username=row.user.get_username())
        found = next(each for each in rows if each.prefix == row.prefix)
        return self.shown(NewTokenShape, NewToken(found, plain), status=201)


class Token(Call):
    needs = {"DELETE": "read"}

    @describe("end_token", "End a token at once: one's own, and for admins anybody's", status=204, problems=(404, 422))
    def delete(self, request: Request, prefix: str) -> Response:
        tokens.end_token(prefix=prefix, actor=actor_of(request), now=self.now)
        return Response(status=204)


class People(Call):
    needs = {"GET": "admin", "POST": "admin"}

    @describe("list_people", "People by name", page=PersonShape, parameters=[NAME])
    def get(self, request: Request) -> Response:
        return self.paged(request, PersonShape, partial(shown.listing, q=request.query_params.get("q", "")))

    @describe(
        "make_person",
        "A new person; the password is shown this once",
        answer=NewPersonShape,
        status=201,
        body=MakePersonSerializer,
        problems=(422,),
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(MakePersonSerializer, request)
        row, password = accounts.make_person(
            username=wanted["username"],
            group=wanted["group"],
            scopes=pairs(wanted["scopes"]),
            actor=actor_of(request),
            now=self.now,
        )
        found = person_detail(row.get_username())
        return self.shown(NewPersonShape, NewPerson(found, password), status=201)


class Person(Call):
    needs = {"GET": "admin", "PATCH": "admin"}

    @describe("get_person", "One person", answer=PersonShape, problems=(404,))
    def get(self, request: Request, username: str) -> Response:
        return self.shown(PersonShape, person_detail(username))

    @describe(
        "change_person",
        "Somebody's group and scopes, and whether they may come in",
        answer=PersonShape,
        body=ChangePersonSerializer,
        problems=(404, 422),
    )
    def patch(self, request: Request, username: str) -> Response:
        wanted = self.read(ChangePersonSerializer, request)
        if "scopes" in wanted:
            wanted["scopes"] = pairs(wanted["scopes"])
        accounts.change_person(
            username=username,
            actor=actor_of(request),
            now=self.now,
            **wanted,
        )
        return self.shown(PersonShape, person_detail(username))


class PersonPassword(Call):
    needs = {"POST": "admin"}

    @describe(
        "reset_password",
        "A new password for somebody who lost theirs, shown this once",
        answer=PasswordShape,
        problems=(404,),
    )
    def post(self, request: Request, username: str) -> Response:
        plain = accounts.reset_password(username=username, actor=actor_of(request), now=self.now)
        return self.shown(PasswordShape, Password(username, plain))


def person_detail(username: str) -> shown.PersonRow:
    """Raises Problem `unknown-person`."""
    found = shown.detail(username=username)
    if found is None:
        raise Problem("unknown-person")
    return found


def pairs(scopes: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(scope["kind"], scope["pattern"]) for scope in scopes]
