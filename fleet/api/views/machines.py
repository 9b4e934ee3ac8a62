"""Machines and join tokens."""

from datetime import timedelta
from functools import partial

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import actor_of
from fleet.api.calls import Call, describe, filtered, filters_of
from fleet.api.shapes.machines import JoinToken, JoinTokenShape, MachineDetailShape, MachineShape
from fleet.api.shapes.requests import JoinTokenRequestSerializer
from fleet.operations.machines import enrolment, join_tokens
from fleet.projections import machines
from fleet.projections.filters import MachineFilter

MACHINE_FILTERS = filters_of(
    MachineFilter,
    {
        "set": "The id of a set.",
        "region": "A region, in any case.",
        "q": "Part of a resource name or of a vmId.",
    },
)


class Machines(Call):
    @describe("list_machines", "Machines by name", page=MachineShape, parameters=MACHINE_FILTERS)
    def get(self, request: Request) -> Response:
        found = filtered(request, MachineFilter(request.query_params))
        return self.paged(request, MachineShape, partial(machines.listing, now=self.now, machines=found))


class Machine(Call):
    @describe("get_machine", "One machine", answer=MachineDetailShape, problems=(404,))
    def get(self, request: Request, machine_id: int) -> Response:
        return shown(machine_id, self)


class RevokeMachine(Call):
    needs = {"POST": "admin"}

    @describe("revoke_machine", "End a machine's credential at once", answer=MachineDetailShape, problems=(404,))
    def post(self, request: Request, machine_id: int) -> Response:
        enrolment.revoke(machine_id=machine_id, actor=actor_of(request), now=self.now)
        return shown(machine_id, self)


class JoinTokens(Call):
    needs = {"POST": "admin"}

    @describe(
        "create_join_token",
        "A token that lets new agents enrol",
        answer=JoinTokenShape,
        status=201,
        body=JoinTokenRequestSerializer,
        problems=(422,),
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(JoinTokenRequestSerializer, request)
        token, plain = join_tokens.create_join_token(
            comment=wanted["comment"],
            expires_in=timedelta(seconds=wanted["expires_in_seconds"]),
            set_name=wanted["set"],
            actor=actor_of(request),
            now=self.now,
        )
        made = JoinToken(
            token=plain,
            prefix=token.prefix,
            comment=token.comment,
            set=token.set_name,
            created_at=token.created_at,
            expires_at=token.expires_at,
        )
        return self.shown(JoinTokenShape, made, status=201)


def shown(machine_id: int, call: Call) -> Response:
    """One machine. Raises Problem `unknown-machine`."""
    found = machines.detail(machine_id=machine_id, now=call.now)
    return call.shown(MachineDetailShape, found, "unknown-machine")
