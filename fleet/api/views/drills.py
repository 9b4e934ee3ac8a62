"""Drills: rehearsing an event of a set with the real agents, and without Azure."""

from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import PAGE_PARAMETERS, Call, names_of, problem_answers
from fleet.api.problems import Problem
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once
from fleet.api.shapes.drills import (
    BeginDrillSerializer,
    DrillReportSerializer,
    DrillSerializer,
    StopDrillSerializer,
)
from fleet.api.shapes.pages import page_of
from fleet.operations import drilling
from fleet.operations.drilling import Wanted
from fleet.projections import drills


class Drills(Call):
    needs = {"POST": "approve"}
    knows = names_of(PAGE_PARAMETERS)

    @extend_schema(
        operation_id="list_drills",
        summary="Drills, newest first",
        parameters=PAGE_PARAMETERS,
        responses={200: page_of(DrillSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        return self.paged(request, DrillSerializer, partial(drills.listing))

    @extend_schema(
        operation_id="begin_drill",
        summary="Rehearse: begin a drill of a set",
        description=(
            "The live agents of the set pretend an event, and Azure knows nothing of it. Hooks of the machines that it"
            " names do run, with `DRYDOCK_DRILL=1`. Then decide as in earnest, with the calls of any event."
        ),
        parameters=[IDEMPOTENCY_KEY],
        request=BeginDrillSerializer,
        responses={201: DrillReportSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(BeginDrillSerializer, request)

        def act() -> Any:
            drill = drilling.begin(
                set_id=wanted["set"],
                by=person_of(request),
                via="api",
                now=self.now,
                comment=wanted["comment"],
                wanted=Wanted(
                    event_type=wanted["type"],
                    machines=wanted["machines"],
                    notice_seconds=wanted["notice_seconds"],
                    duration_seconds=wanted["duration_seconds"],
                ),
                token_name=token_name(request),
            )
            return told(drill.pk, self)

        return answered(once(request, act, now=self.now))


class Drill(Call):
    needs = {"DELETE": "approve"}

    @extend_schema(
        operation_id="get_drill",
        summary="The report of a drill: every step so far, of the whole and of each machine",
        responses={200: DrillReportSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, drill_id: int) -> Response:
        return Response(told(drill_id, self))

    @extend_schema(
        operation_id="stop_drill",
        summary="Stop a drill before its time",
        request=StopDrillSerializer,
        responses={200: DrillReportSerializer, **problem_answers(404, 409, 422)},
    )
    def delete(self, request: Request, drill_id: int) -> Response:
        wanted = self.read(StopDrillSerializer, request)
        drilling.stop(
            drill_id=drill_id,
            by=person_of(request),
            via="api",
            now=self.now,
            comment=wanted["comment"],
            token_name=token_name(request),
        )
        return Response(told(drill_id, self))


def told(drill_id: int, call: Call) -> dict[str, Any]:
    """The report as JSON values. Raises Problem `unknown-drill`."""
    found = drills.report(drill_id=drill_id, now=call.now)
    if found is None:
        raise Problem("unknown-drill")
    values: dict[str, Any] = DrillReportSerializer(found, context={"now": call.now}).data
    return values
