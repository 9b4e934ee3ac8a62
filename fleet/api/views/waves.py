"""API calls about waves and drills. A drill rehearses an event of a set with real agents and without Azure."""

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes.requests import BeginDrillSerializer, BeginWaveSerializer, WhySerializer
from fleet.api.views.approvals import DECISION_PROBLEMS
from fleet.operations import drills as operations
from fleet.operations import waves as wave_operations
from fleet.projections import drills, waves
from fleet.projections.filters import DrillFilter, WaveFilter


@list_call("list_drills", drills.listing, DrillFilter, "drills", orders=("created_at",))
class Drills(Call, at="drills/"):
    """List drills, newest first

    Current and ended ones, each with its set and its outcome.
    """

    @describe(
        "begin_drill",
        needs="approve",
        body=BeginDrillSerializer,
        location="drills/{drill[id]}/",
        problems=("unknown-set", "real-event-open", "drill-open", "no-live-machine", "stopped"),
    )
    def post(self) -> drills.DrillReport | None:
        """Start a drill of a set

        The live agents of the set simulate an event; Azure does not take part. Hooks of the named machines run, with
        `DRYDOCK_DRILL=1`. Decide as for a real event, with the same calls.
        """
        wanted = self.wanted
        drill = operations.begin(
            set_id=wanted["set"],
            actor=self.commented,
            now=self.now,
            wanted=operations.Wanted(
                event_type=wanted["type"],
                machines=wanted["machines"],
                notice_seconds=wanted["notice_seconds"],
                duration_seconds=wanted["duration_seconds"],
            ),
        )
        return drills.report(drill_id=drill.pk, now=self.now)


@detail_call("get_drill", drills.report)
class Drill(Call, at="drills/<int:drill_id>/"):
    """Get the report of a drill: its steps and those of each machine

    What was rehearsed, which steps were reached after how many seconds, and what each machine did. During the drill,
    `next_step` states what to do or what Drydock waits for.
    """

    @describe("stop_drill", needs="approve", body=WhySerializer, problems=("too-late",))
    def delete(self, drill_id: int) -> drills.DrillReport | None:
        """Stop a drill early

        Its event ends, and the machines stop the simulation. A drill that has ended answers with the problem
        `too-late`.
        """
        operations.stop(drill_id=drill_id, actor=self.commented, now=self.now)
        return drills.report(drill_id=drill_id, now=self.now)


# Waves: begin, follow and stop one.


@list_call("list_waves", waves.listing, WaveFilter, "waves", orders=("created_at",))
class Waves(Call, at="waves/"):
    """List waves: current ones, then ended ones, newest first

    Each with its events in order, its progress, and what it waits for.
    """

    @describe(
        "begin_wave",
        needs="approve",
        body=BeginWaveSerializer,
        location="waves/{id}/",
        problems=(*DECISION_PROBLEMS, "unknown-event", "wave-running", "already-decided"),
    )
    def post(self) -> waves.WaveRow | None:
        """Start a wave: approve several events one after the other

        The next event is approved when the one before has ended and its machines are live again. Either all of them are
        accepted, or none.
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
class Wave(Call, at="waves/<int:wave_id>/"):
    """Get a wave: the order of its events, its progress, and why it waits

    Its events in order, the missing machines of each, and a sentence that states what it waits for.
    """

    @describe("stop_wave", needs="approve", body=WhySerializer, problems=("too-late",))
    def delete(self, wave_id: int) -> waves.WaveRow | None:
        """Stop a wave

        Waiting approvals are withdrawn; events that were sent to Azure continue. A wave that has ended answers with the
        problem `too-late`.
        """
        wave_operations.stop(wave_id=wave_id, actor=self.commented, now=self.now)
        return waves.detail(wave_id=wave_id, now=self.now)
