"""Machines and join tokens."""

from datetime import timedelta
from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, filtered, names_of, problem_answers, query_parameters
from fleet.api.problems import Problem
from fleet.api.shapes.base import values_of
from fleet.api.shapes.machines import (
    JoinTokenSerializer,
    MachineDetailSerializer,
    MachineSerializer,
)
from fleet.api.shapes.pages import page_of
from fleet.api.shapes.requests import JoinTokenRequestSerializer
from fleet.operations import enrolment
from fleet.projections import machines
from fleet.projections.filters import MachineFilter

MACHINE_PARAMETERS = query_parameters(
    ("set", int, "The id of a set."),
    ("region", str, "A region, in any case."),
    ("q", str, "Part of a resource name or of a vmId."),
)


class Machines(Call):
    knows = names_of(MACHINE_PARAMETERS)

    @extend_schema(
        operation_id="list_machines",
        summary="Machines by name",
        parameters=MACHINE_PARAMETERS,
        responses={200: page_of(MachineSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, MachineFilter(request.query_params))
        return self.paged(request, MachineSerializer, partial(machines.listing, now=self.now, machines=found))


def detail_of(machine_id: int, now: Any) -> dict[str, Any]:
    """The fields of one machine and those beside it. Raises Problem `unknown-machine`."""
    found = machines.detail(machine_id=machine_id, now=now)
    if found is None:
        raise Problem("unknown-machine")
    return values_of(found.machine, found)


class Machine(Call):
    @extend_schema(
        operation_id="get_machine",
        summary="One machine",
        responses={200: MachineDetailSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, machine_id: int) -> Response:
        return self.shown(MachineDetailSerializer, detail_of(machine_id, self.now))


class RevokeMachine(Call):
    needs = {"POST": "admin"}

    @extend_schema(
        operation_id="revoke_machine",
        summary="End a machine's credential at once",
        request=None,
        responses={200: MachineDetailSerializer, **problem_answers(404)},
    )
    def post(self, request: Request, machine_id: int) -> Response:
        enrolment.revoke(
            machine_id=machine_id, by=person_of(request), via="api", token_name=token_name(request), now=self.now
        )
        return self.shown(MachineDetailSerializer, detail_of(machine_id, self.now))


class JoinTokens(Call):
    needs = {"POST": "admin"}

    @extend_schema(
        operation_id="create_join_token",
        summary="A token that lets new agents enrol",
        request=JoinTokenRequestSerializer,
        responses={201: JoinTokenSerializer, **problem_answers(422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(JoinTokenRequestSerializer, request)
        token, plain = enrolment.create_join_token(
            comment=wanted["comment"],
            expires_in=timedelta(seconds=wanted["expires_in_seconds"]),
            set_name=wanted["set"],
            by=person_of(request),
            via="api",
            token_name=token_name(request),
            now=self.now,
        )
        made = {
            "token": plain,
            "prefix": token.prefix,
            "comment": token.comment,
            "set_name": token.set_name,
            "created_at": token.created_at,
            "expires_at": token.expires_at,
        }
        return self.shown(JoinTokenSerializer, made, status=201)
