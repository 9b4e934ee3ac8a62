"""Waves: beginning one, following it, stopping it."""

from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, describe
from fleet.api.repeats import IDEMPOTENCY_KEY
from fleet.api.shapes.waves import BeginWaveSerializer, StopWaveSerializer, WaveShape
from fleet.operations.waves import begin, end
from fleet.projections import waves


class Waves(Call):
    needs = {"POST": "approve"}

    @describe("list_waves", "Waves: those that run, then those that are over, newest first", page=WaveShape)
    def get(self, request: Request) -> Response:
        return self.paged(request, WaveShape, partial(waves.listing, now=self.now))

    @describe(
        "begin_wave",
        "Approve several events in turn",
        answer=WaveShape,
        status=201,
        body=BeginWaveSerializer,
        problems=(404, 409, 422),
        description=(
            "Strictly one after the other: the next goes when the one before has ended and its machines are live again."
            " All of them are decided, or none."
        ),
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(BeginWaveSerializer, request)

        def act() -> Any:
            wave = begin.begin(
                by=person_of(request),
                via="api",
                comment=wanted["comment"],
                events=wanted["events"],
                service=wanted["service"],
                overrides=wanted["override"],
                token_name=token_name(request),
                now=self.now,
            )
            return shown(wave.pk, self)

        return self.once(request, act)


class Wave(Call):
    needs = {"DELETE": "approve"}

    @describe(
        "get_wave", "One wave: each event's turn, how far it is, and why it waits", answer=WaveShape, problems=(404,)
    )
    def get(self, request: Request, wave_id: int) -> Response:
        return Response(shown(wave_id, self))

    @describe(
        "stop_wave",
        "Stop a wave: what waits is withdrawn, what is on its way goes on",
        answer=WaveShape,
        body=StopWaveSerializer,
        problems=(404, 409, 422),
    )
    def delete(self, request: Request, wave_id: int) -> Response:
        wanted = self.read(StopWaveSerializer, request)
        end.stop(
            wave_id=wave_id,
            by=person_of(request),
            via="api",
            reason=wanted["comment"],
            token_name=token_name(request),
            now=self.now,
        )
        return Response(shown(wave_id, self))


def shown(wave_id: int, call: Call) -> Any:
    """One wave as JSON values. Raises Problem `unknown-wave`."""
    return call.values(WaveShape, waves.detail(wave_id=wave_id, now=call.now), "unknown-wave")
