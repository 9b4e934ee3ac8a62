"""Drills: rehearsing an event of a set with the real agents, and without Azure."""

from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, describe
from fleet.api.repeats import IDEMPOTENCY_KEY
from fleet.api.shapes.drills import (
    BeginDrillSerializer,
    DrillReportShape,
    DrillShape,
    StopDrillSerializer,
)
from fleet.operations.drills import begin
from fleet.operations.drills.begin import Wanted
from fleet.projections import drills


class Drills(Call):
    needs = {"POST": "approve"}

    @describe("list_drills", "Drills, newest first", page=DrillShape)
    def get(self, request: Request) -> Response:
        return self.paged(request, DrillShape, partial(drills.listing))

    @describe(
        "begin_drill",
        "Rehearse: begin a drill of a set",
        answer=DrillReportShape,
        status=201,
        body=BeginDrillSerializer,
        problems=(404, 409, 422),
        description=(
            "The live agents of the set pretend an event, and Azure knows nothing of it. Hooks of the machines that it"
            " names do run, with `DRYDOCK_DRILL=1`. Then decide as for a real event, with the same calls."
        ),
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(BeginDrillSerializer, request)

        def act() -> Any:
            drill = begin.begin(
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

        return self.once(request, act)


class Drill(Call):
    needs = {"DELETE": "approve"}

    @describe(
        "get_drill",
        "The report of a drill: every step so far, of the whole and of each machine",
        answer=DrillReportShape,
        problems=(404,),
    )
    def get(self, request: Request, drill_id: int) -> Response:
        return Response(told(drill_id, self))

    @describe(
        "stop_drill",
        "Stop a drill before its time",
        answer=DrillReportShape,
        body=StopDrillSerializer,
        problems=(404, 409, 422),
    )
    def delete(self, request: Request, drill_id: int) -> Response:
        wanted = self.read(StopDrillSerializer, request)
        begin.stop(
            drill_id=drill_id,
            by=person_of(request),
            via="api",
            now=self.now,
            comment=wanted["comment"],
            token_name=token_name(request),
        )
        return Response(told(drill_id, self))


def told(drill_id: int, call: Call) -> Any:
    """The report as JSON values. Raises Problem `unknown-drill`."""
    return call.values(DrillReportShape, drills.report(drill_id=drill_id, now=call.now), "unknown-drill")
