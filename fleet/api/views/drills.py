"""Drills: rehearsing an event of a set with the real agents, and without Azure."""

from fleet.api.calls import Call
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import CHANGED_SINCE, PLACES
from fleet.api.shapes.drills import BeginDrillSerializer, DrillReportShape, DrillShape
from fleet.api.shapes.requests import WhySerializer
from fleet.operations.drills import begin
from fleet.operations.drills.begin import Wanted
from fleet.projections import drills
from fleet.projections.filters import DrillFilter
from fleet.projections.pages import Page

DRILL_FILTERS = filters_of(
    DrillFilter,
    {
        **PLACES,
        "since": "Begun at or after this time.",
        "until": "Begun before this time.",
        "changed_since": CHANGED_SINCE,
    },
)


class Drills(Call):
    @describe(
        "list_drills",
        "Drills, newest first",
        ("Those that go on and those that are over, each with its set and its outcome."),
        page=DrillShape,
        parameters=[*DRILL_FILTERS, ordering("created_at")],
    )
    def get(self) -> Page[drills.DrillRow]:
        return drills.listing(drills=self.filtered(DrillFilter), **self.place)

    @describe(
        "begin_drill",
        "Rehearse: begin a drill of a set",
        "The live agents of the set pretend an event, and Azure knows nothing of it. Hooks of the machines that it"
        " names do run, with `DRYDOCK_DRILL=1`. Then decide as for a real event, with the same calls.",
        needs="approve",
        answer=DrillReportShape,
        body=BeginDrillSerializer,
        status=201,
        location="drills/{drill[id]}/",
        problems=("unknown-set", "real-event-open", "drill-open", "no-live-machine", "stopped"),
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
        (
            "What was rehearsed, which steps were reached after how many seconds, and what each machine did."
            " While it goes on, `next_step` says what to do or what is waited for."
        ),
        answer=DrillReportShape,
        missing=("unknown-drill",),
    )
    def get(self, drill_id: int) -> drills.DrillReport | None:
        return drills.report(drill_id=drill_id, now=self.now)

    @describe(
        "stop_drill",
        "Stop a drill before its time",
        ("Its event ends, and the machines stop pretending. One that is over answers `too-late`."),
        needs="approve",
        answer=DrillReportShape,
        body=WhySerializer,
        problems=("too-late",),
    )
    def delete(self, drill_id: int) -> drills.DrillReport | None:
        begin.stop(drill_id=drill_id, actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return drills.report(drill_id=drill_id, now=self.now)
