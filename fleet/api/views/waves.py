"""Drills, which rehearse an event of a set with real agents and without Azure, and waves."""

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes.requests import BeginDrillSerializer, BeginWaveSerializer, WhySerializer
from fleet.api.views.approvals import DECISION_PROBLEMS
from fleet.operations import waves as wave_operations
from fleet.operations.drills import begin
from fleet.operations.drills.begin import Wanted
from fleet.projections import drills, waves
from fleet.projections.filters import DrillFilter, WaveFilter


@list_call("list_drills", drills.listing, DrillFilter, "drills", orders=("created_at",))
class Drills(Call):
    """Drills, newest first

    Those that go on and those that are over, each with its set and its outcome.
    """

    @describe(
        "begin_drill",
        needs="approve",
        body=BeginDrillSerializer,
        location="drills/{drill[id]}/",
        problems=("unknown-set", "real-event-open", "drill-open", "no-live-machine", "stopped"),
    )
    def post(self) -> drills.DrillReport | None:
        """Rehearse: begin a drill of a set

        The live agents of the set pretend an event, and Azure knows nothing of it. Hooks of the machines that it names
        do run, with `DRYDOCK_DRILL=1`. Then decide as for a real event, with the same calls.
        """
        wanted = self.wanted
        drill = begin.begin(
            set_id=wanted["set"],
            actor=self.commented,
            now=self.now,
            wanted=Wanted(
                event_type=wanted["type"],
                machines=wanted["machines"],
                notice_seconds=wanted["notice_seconds"],
                duration_seconds=wanted["duration_seconds"],
            ),
        )
        return drills.report(drill_id=drill.pk, now=self.now)


@detail_call("get_drill", drills.report)
class Drill(Call):
    """The report of a drill: every step so far, of the whole and of each machine

    What was rehearsed, which steps were reached after how many seconds, and what each machine did. While it goes
    on, `next_step` says what to do or what is waited for.
    """

    @describe("stop_drill", needs="approve", body=WhySerializer, problems=("too-late",))
    def delete(self, drill_id: int) -> drills.DrillReport | None:
        """Stop a drill before its time

        Its event ends, and the machines stop pretending. One that is over answers `too-late`.
        """
        begin.stop(drill_id=drill_id, actor=self.commented, now=self.now)
        return drills.report(drill_id=drill_id, now=self.now)


# Waves: begin, follow and stop one.


@list_call("list_waves", waves.listing, WaveFilter, "waves", orders=("created_at",))
class Waves(Call):
    """Waves: those that run, then those that are over, newest first

    Each with its events in turn, how far it is, and what it waits for.
    """

    @describe(
        "begin_wave",
        needs="approve",
        body=BeginWaveSerializer,
        location="waves/{id}/",
        problems=(*DECISION_PROBLEMS, "unknown-event", "wave-running", "already-decided"),
    )
    def post(self) -> waves.WaveRow | None:
        """Approve several events in turn

        Strictly one after the other: the next goes when the one before has ended and its machines are live again. All
        of them are decided, or none.
        """
        wave = wave_operations.begin(
            actor=self.commented,
            events=self.wanted["events"],
            service=self.wanted["service"],
            overrides=self.wanted["override"],
            shown=self.wanted["shown"],
            versions=self.wanted["expected_versions"],
            now=self.now,
        )
        return waves.detail(wave_id=wave.pk, now=self.now)


@detail_call("get_wave", waves.detail)
class Wave(Call):
    """One wave: each event's turn, how far it is, and why it waits

    Its events in turn, who of their machines is missing, and the sentence that says what it waits for.
    """

    @describe("stop_wave", needs="approve", body=WhySerializer, problems=("too-late",))
    def delete(self, wave_id: int) -> waves.WaveRow | None:
        """Stop a wave: what waits is withdrawn, what is on its way goes on

        What was sent to Azure goes on; approvals that wait are withdrawn. One that is over answers `too-late`.
        """
        wave_operations.stop(wave_id=wave_id, actor=self.commented, now=self.now)
        return waves.detail(wave_id=wave_id, now=self.now)
