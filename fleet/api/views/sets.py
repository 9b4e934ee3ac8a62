"""Availability sets: reading them, naming a provisional one, joining two that are one."""

from functools import partial

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, filtered, names_of, problem_answers, query_parameters
from fleet.api.problems import Problem
from fleet.api.shapes.machines import SetSerializer
from fleet.api.shapes.pages import page_of
from fleet.api.shapes.requests import MergeSetSerializer, NameSetSerializer
from fleet.operations import naming
from fleet.projections import sets
from fleet.projections.filters import SetFilter

SET_PARAMETERS = query_parameters(
    ("kind", str, "One kind of set."),
    ("service", str, "The service, exactly."),
    ("q", str, "Part of a name or of a resource group."),
)


class Sets(Call):
    knows = names_of(SET_PARAMETERS)

    @extend_schema(
        operation_id="list_sets",
        summary="Availability sets by name",
        parameters=SET_PARAMETERS,
        responses={200: page_of(SetSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, SetFilter(request.query_params))
        return self.paged(request, SetSerializer, partial(sets.listing, now=self.now, sets=found))


class Set(Call):
    needs = {"PATCH": "admin"}

    @extend_schema(
        operation_id="get_set",
        summary="One availability set with its machines and open events",
        description="The id of a set that was merged answers with the set that remains.",
        responses={200: SetSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, set_id: int) -> Response:
        return shown(set_id, self)

    @extend_schema(
        operation_id="name_set",
        summary="Name a provisional set, say its service, or whether it always takes a second person",
        request=NameSetSerializer,
        responses={200: SetSerializer, **problem_answers(404, 409, 422)},
    )
    def patch(self, request: Request, set_id: int) -> Response:
        wanted = self.read(NameSetSerializer, request)
        naming.name_set(
            set_id=set_id, by=person_of(request), via="api", token_name=token_name(request), now=self.now, **wanted
        )
        return shown(set_id, self)


class MergeSet(Call):
    needs = {"POST": "admin"}

    @extend_schema(
        operation_id="merge_set",
        summary="Merge this set into another one: they are one at Azure",
        description="Machines, events and inventory move; no entry is lost. It cannot be undone.",
        request=MergeSetSerializer,
        responses={200: SetSerializer, **problem_answers(404, 422)},
    )
    def post(self, request: Request, set_id: int) -> Response:
        into = self.read(MergeSetSerializer, request)["into"]
        naming.merge_sets(
            set_id=set_id, into=into, by=person_of(request), via="api", token_name=token_name(request), now=self.now
        )
        return shown(into, self)


def shown(set_id: int, call: Call) -> Response:
    """One set. Raises Problem `not-found`."""
    found = sets.detail(set_id=set_id, now=call.now)
    if found is None:
        raise Problem("not-found", "No set has this id.")
    return call.shown(SetSerializer, found.set)
