"""Availability sets: reading them, naming a provisional one, joining two that are one."""

from functools import partial

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import actor_of
from fleet.api.calls import Call, describe, filtered, filters_of
from fleet.api.shapes.machines import SetShape
from fleet.api.shapes.requests import MergeSetSerializer, NameSetSerializer
from fleet.operations.sets import names
from fleet.projections import sets
from fleet.projections.filters import SetFilter

SET_FILTERS = filters_of(
    SetFilter,
    {
        "kind": "One kind of set.",
        "service": "The service, exactly.",
        "q": "Part of a name or of a resource group.",
    },
)


class Sets(Call):
    @describe("list_sets", "Availability sets by name", page=SetShape, parameters=SET_FILTERS)
    def get(self, request: Request) -> Response:
        found = filtered(request, SetFilter(request.query_params))
        return self.paged(request, SetShape, partial(sets.listing, now=self.now, sets=found))


class Set(Call):
    needs = {"PATCH": "admin"}

    @describe(
        "get_set",
        "One availability set with its machines and open events",
        answer=SetShape,
        problems=(404,),
        description="The id of a set that was merged answers with the set that remains.",
    )
    def get(self, request: Request, set_id: int) -> Response:
        return shown(set_id, self)

    @describe(
        "name_set",
        "Name a provisional set, say its service, or whether it always takes a second person",
        answer=SetShape,
        body=NameSetSerializer,
        problems=(404, 409, 422),
    )
    def patch(self, request: Request, set_id: int) -> Response:
        wanted = self.read(NameSetSerializer, request)
        names.name_set(set_id=set_id, actor=actor_of(request), now=self.now, **wanted)
        return shown(set_id, self)


class MergeSet(Call):
    needs = {"POST": "admin"}

    @describe(
        "merge_set",
        "Merge this set into another one: they are one at Azure",
        answer=SetShape,
        body=MergeSetSerializer,
        problems=(404, 422),
        description="Machines, events and inventory move; no entry is lost. It cannot be undone.",
    )
    def post(self, request: Request, set_id: int) -> Response:
        into = self.read(MergeSetSerializer, request)["into"]
        names.merge_sets(set_id=set_id, into=into, actor=actor_of(request), now=self.now)
        return shown(into, self)


def shown(set_id: int, call: Call) -> Response:
    """One set. Raises Problem `not-found`."""
    found = sets.detail(set_id=set_id, now=call.now)
    return call.shown(SetShape, found and found.set, "not-found", "No set has this id.")
