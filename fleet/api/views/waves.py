"""Waves: beginning one, following it, stopping it."""

from fleet.api.calls import Call
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import CHANGED_SINCE, PLACES
from fleet.api.shapes.requests import WhySerializer
from fleet.api.shapes.waves import BeginWaveSerializer, WaveShape
from fleet.operations import waves as begin
from fleet.operations import waves as end
from fleet.projections import waves
from fleet.projections.filters import WaveFilter
from fleet.projections.pages import Page

WAVE_FILTERS = filters_of(
    WaveFilter,
    {
        **PLACES,
        "state": "`RUNNING`, `DONE` or `STOPPED`; may be repeated.",
        "since": "Begun at or after this time.",
        "changed_since": CHANGED_SINCE,
        "until": "Begun before this time.",
    },
)


class Waves(Call):
    @describe(
        "list_waves",
        "Waves: those that run, then those that are over, newest first",
        ("Each with its events in turn, how far it is, and what it waits for."),
        page=WaveShape,
        parameters=[*WAVE_FILTERS, ordering("created_at")],
    )
    def get(self) -> Page[waves.WaveRow]:
        return waves.listing(now=self.now, waves=self.filtered(WaveFilter), **self.place)

    @describe(
        "begin_wave",
        "Approve several events in turn",
        "Strictly one after the other: the next goes when the one before has ended and its machines are live again."
        " All of them are decided, or none.",
        needs="approve",
        answer=WaveShape,
        body=BeginWaveSerializer,
        status=201,
        location="waves/{id}/",
        problems=(
            "unknown-event",
            "wave-running",
            "guarded",
            "already-decided",
            "too-late",
            "version-changed",
            "stopped",
        ),
    )
    def post(self) -> waves.WaveRow | None:
        wave = begin.begin(
            actor=self.actor.because(self.wanted["comment"]),
            events=self.wanted["events"],
            service=self.wanted["service"],
            overrides=self.wanted["override"],
            shown=self.wanted["shown"],
            versions=self.wanted["expected_versions"],
            now=self.now,
        )
        return waves.detail(wave_id=wave.pk, now=self.now)


class Wave(Call):
    @describe(
        "get_wave",
        "One wave: each event's turn, how far it is, and why it waits",
        ("Its events in turn, who of their machines is missing, and the sentence that says what it waits for."),
        answer=WaveShape,
        missing=("unknown-wave",),
    )
    def get(self, wave_id: int) -> waves.WaveRow | None:
        return waves.detail(wave_id=wave_id, now=self.now)

    @describe(
        "stop_wave",
        "Stop a wave: what waits is withdrawn, what is on its way goes on",
        ("What was sent to Azure goes on; approvals that wait are withdrawn. One that is over answers `too-late`."),
        needs="approve",
        answer=WaveShape,
        body=WhySerializer,
        problems=("too-late",),
    )
    def delete(self, wave_id: int) -> waves.WaveRow | None:
        end.stop(wave_id=wave_id, actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return waves.detail(wave_id=wave_id, now=self.now)
