"""Drills: rehearsing an event of a set with the real agents, and without Azure."""

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.shapes.drills import BeginDrillSerializer, DrillReportShape, DrillShape
from fleet.api.shapes.requests import WhySerializer
from fleet.operations.drills import begin
from fleet.operations.drills.begin import Wanted
from fleet.projections import drills
from fleet.projections.pages import Page


class Drills(Call):
    @describe("list_drills", "Drills, newest first", page=DrillShape)
    def get(self) -> Page[drills.DrillRow]:
        return drills.listing(**self.place)

    @describe(
        "begin_drill",
        "Rehearse: begin a drill of a set",
        needs="approve",
        answer=DrillReportShape,
        body=BeginDrillSerializer,
        repeatable=True,
        problems=(404,),
        description=(
            "The live agents of the set pretend an event, and Azure knows nothing of it. Hooks of the machines that it"
            " names do run, with `DRYDOCK_DRILL=1`. Then decide as for a real event, with the same calls."
        ),
    )
    def post(self) -> drills.DrillReport | None:
        wanted = self.wanted
        drill = begin.begin(
            set_id=wanted["set"],
            actor=self.actor.because(wanted["comment"]),
            now=self.now,
            wanted=Wanted(
                event_type=wanted["type"],
                machines=wanted["machines"],
                notice_seconds=wanted["notice_seconds"],
                duration_seconds=wanted["duration_seconds"],
            ),
        )
        return drills.report(drill_id=drill.pk, now=self.now)


class Drill(Call):
    @describe(
        "get_drill",
        "The report of a drill: every step so far, of the whole and of each machine",
        answer=DrillReportShape,
        missing=("unknown-drill",),
    )
    def get(self, drill_id: int) -> drills.DrillReport | None:
        return drills.report(drill_id=drill_id, now=self.now)

    @describe(
        "stop_drill",
        "Stop a drill before its time",
        needs="approve",
        answer=DrillReportShape,
        body=WhySerializer,
        problems=(404, 409),
    )
    def delete(self, drill_id: int) -> drills.DrillReport | None:
        begin.stop(drill_id=drill_id, actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return drills.report(drill_id=drill_id, now=self.now)
