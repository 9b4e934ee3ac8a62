"""Waves: beginning one, following it, stopping it."""

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.shapes.requests import WhySerializer
from fleet.api.shapes.waves import BeginWaveSerializer, WaveShape
from fleet.operations.waves import begin, end
from fleet.projections import waves
from fleet.projections.pages import Page


class Waves(Call):
    @describe("list_waves", "Waves: those that run, then those that are over, newest first", page=WaveShape)
    def get(self) -> Page[waves.WaveRow]:
        return waves.listing(now=self.now, **self.place)

    @describe(
        "begin_wave",
        "Approve several events in turn",
        needs="approve",
        answer=WaveShape,
        body=BeginWaveSerializer,
        repeatable=True,
        problems=(404,),
        description=(
            "Strictly one after the other: the next goes when the one before has ended and its machines are live again."
            " All of them are decided, or none."
        ),
    )
    def post(self) -> waves.WaveRow | None:
        wave = begin.begin(
            actor=self.actor.because(self.wanted["comment"]),
            events=self.wanted["events"],
            service=self.wanted["service"],
            overrides=self.wanted["override"],
            now=self.now,
        )
        return waves.detail(wave_id=wave.pk, now=self.now)


class Wave(Call):
    @describe(
        "get_wave",
        "One wave: each event's turn, how far it is, and why it waits",
        answer=WaveShape,
        missing=("unknown-wave",),
    )
    def get(self, wave_id: int) -> waves.WaveRow | None:
        return waves.detail(wave_id=wave_id, now=self.now)

    @describe(
        "stop_wave",
        "Stop a wave: what waits is withdrawn, what is on its way goes on",
        needs="approve",
        answer=WaveShape,
        body=WhySerializer,
        problems=(404, 409),
    )
    def delete(self, wave_id: int) -> waves.WaveRow | None:
        end.stop(wave_id=wave_id, actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return waves.detail(wave_id=wave_id, now=self.now)
