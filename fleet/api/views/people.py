"""Oneself, one's tokens, and for admins everybody."""

from datetime import timedelta
from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, names_of, problem_answers, query_parameters
from fleet.api.problems import Problem
from fleet.api.shapes.base import values_of
from fleet.api.shapes.pages import page_of
from fleet.api.shapes.people import (
    ChangePersonSerializer,
    ChoicesSerializer,
    MakePersonSerializer,
    MakeTokenSerializer,
    MeSerializer,
    NewPersonSerializer,
    NewTokenSerializer,
    PasswordSerializer,
    PersonSerializer,
    TokenSerializer,
)
from fleet.operations import membership, people, profiles
from fleet.projections import people as shown

PEOPLE_PARAMETERS = query_parameters(("q", str, "Part of a name."))
WITH_ENDED = OpenApiParameter("ended", bool, description="`true`: those that were ended, too.")


def me_of(request: Request) -> dict[str, Any]:
    """The fields of who calls."""
    found = shown.me(user_id=person_of(request).pk)
    token: Any = request.auth
    carried = {"name": token.name, "scopes": token.scopes, "expires_at": token.expires_at} if token else None
    return {**values_of(found.person, found.settings), "token": carried}


class Me(Call):
    needs = {"PATCH": "read"}

    @extend_schema(operation_id="get_me", summary="Who calls, and what they may", responses={200: MeSerializer})
    def get(self, request: Request) -> Response:
        return self.shown(MeSerializer, me_of(request))

    @extend_schema(
        operation_id="change_me",
        summary="One's own time zone and shortcuts",
        request=ChoicesSerializer,
        responses={200: MeSerializer, **problem_answers(422)},
    )
    def patch(self, request: Request) -> Response:
        wanted = self.read(ChoicesSerializer, request)
        profiles.choose(by=person_of(request), via="api", token_name=token_name(request), now=self.now, **wanted)
        return self.shown(MeSerializer, me_of(request))


class Tokens(Call):
    needs = {"POST": "read"}
    knows = frozenset({"ended"})

    @extend_schema(
        operation_id="list_tokens",
        summary="One's own tokens, newest first",
        parameters=[WITH_ENDED],
        responses={200: page_of(TokenSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        with_ended = request.query_params.get("ended", "false").lower() == "true"
        rows = shown.tokens(username=person_of(request).get_username(), with_ended=with_ended)
        found = TokenSerializer(rows, many=True, context={"now": self.now}).data
        return Response({"next": None, "previous": None, "results": found})

    @extend_schema(
        operation_id="make_token",
        summary="A token for oneself, shown this once",
        description="It may no more than its person, and no more and no longer than the token that asks for it.",
        request=MakeTokenSerializer,
        responses={201: NewTokenSerializer, **problem_answers(422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(MakeTokenSerializer, request)
        carried: Any = request.auth
        row, plain = people.make_own_token(
            by=person_of(request),
            via="api",
            name=wanted["name"],
            scopes=wanted["scopes"],
            expires_in=timedelta(seconds=wanted["expires_in_seconds"]),
            now=self.now,
            carried=carried,
        )
        rows = shown.tokens(username=row.user.get_username())
        found = next(each for each in rows if each.prefix == row.prefix)
        return self.shown(NewTokenSerializer, {"token": plain, **values_of(found)}, status=201)


class Token(Call):
    needs = {"DELETE": "read"}

    @extend_schema(
        operation_id="end_token",
        summary="End a token at once: one's own, and for admins anybody's",
        request=None,
        responses={204: None, **problem_answers(404, 422)},
    )
    def delete(self, request: Request, prefix: str) -> Response:
        people.end_token(prefix=prefix, by=person_of(request), via="api", token_name=token_name(request), now=self.now)
        return Response(status=204)


class People(Call):
    needs = {"GET": "admin", "POST": "admin"}
    knows = names_of(PEOPLE_PARAMETERS)

    @extend_schema(
        operation_id="list_people",
        summary="People by name",
        parameters=PEOPLE_PARAMETERS,
        responses={200: page_of(PersonSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        return self.paged(request, PersonSerializer, partial(shown.listing, q=request.query_params.get("q", "")))

    @extend_schema(
        operation_id="make_person",
        summary="A new person; the password is shown this once",
        request=MakePersonSerializer,
        responses={201: NewPersonSerializer, **problem_answers(422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(MakePersonSerializer, request)
        row, password = membership.make_person(
            username=wanted["username"],
            group=wanted["group"],
            scopes=pairs(wanted["scopes"]),
            by=person_of(request),
            via="api",
            token_name=token_name(request),
            now=self.now,
        )
        found = person_detail(row.get_username())
        return self.shown(NewPersonSerializer, {**values_of(found), "password": password}, status=201)


class Person(Call):
    needs = {"GET": "admin", "PATCH": "admin"}

    @extend_schema(
        operation_id="get_person", summary="One person", responses={200: PersonSerializer, **problem_answers(404)}
    )
    def get(self, request: Request, username: str) -> Response:
        return self.shown(PersonSerializer, person_detail(username))

    @extend_schema(
        operation_id="change_person",
        summary="Somebody's group and scopes, and whether they may come in",
        request=ChangePersonSerializer,
        responses={200: PersonSerializer, **problem_answers(404, 422)},
    )
    def patch(self, request: Request, username: str) -> Response:
        wanted = self.read(ChangePersonSerializer, request)
        if "scopes" in wanted:
            wanted["scopes"] = pairs(wanted["scopes"])
        membership.change_person(
            username=username,
            by=person_of(request),
            via="api",
            token_name=token_name(request),
            now=self.now,
            **wanted,
        )
        return self.shown(PersonSerializer, person_detail(username))


class PersonPassword(Call):
    needs = {"POST": "admin"}

    @extend_schema(
        operation_id="reset_password",
        summary="A new password for somebody who lost theirs, shown this once",
        request=None,
        responses={200: PasswordSerializer, **problem_answers(404)},
    )
    def post(self, request: Request, username: str) -> Response:
        plain = membership.reset_password(
            username=username, by=person_of(request), via="api", token_name=token_name(request), now=self.now
        )
        return self.shown(PasswordSerializer, {"username": username, "password": plain})


def person_detail(username: str) -> shown.PersonRow:
    """Raises Problem `unknown-person`."""
    found = shown.detail(username=username)
    if found is None:
        raise Problem("unknown-person")
    return found


def pairs(scopes: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(scope["kind"], scope["pattern"]) for scope in scopes]
