"""Waves: beginning one, following it, stopping it."""

from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import PAGE_PARAMETERS, Call, names_of, problem_answers
from fleet.api.problems import Problem
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once
from fleet.api.shapes.pages import page_of
from fleet.api.shapes.waves import BeginWaveSerializer, StopWaveSerializer, WaveSerializer
from fleet.operations import beginning
from fleet.operations import waves as operations
from fleet.projections import waves


class Waves(Call):
    needs = {"POST": "approve"}
    knows = names_of(PAGE_PARAMETERS)

    @extend_schema(
        operation_id="list_waves",
        summary="Waves: those that run, then those that are over, newest first",
        parameters=PAGE_PARAMETERS,
        responses={200: page_of(WaveSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        return self.paged(request, WaveSerializer, partial(waves.listing, now=self.now))

    @extend_schema(
        operation_id="begin_wave",
        summary="Approve several events in turn",
        description=(
            "Strictly one after the other: the next goes when the one before has ended and its machines are live again."
            " All of them are decided, or none."
        ),
        parameters=[IDEMPOTENCY_KEY],
        request=BeginWaveSerializer,
        responses={201: WaveSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(BeginWaveSerializer, request)

        def act() -> Any:
            wave = beginning.begin(
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

        return answered(once(request, act, now=self.now))


class Wave(Call):
    needs = {"DELETE": "approve"}

    @extend_schema(
        operation_id="get_wave",
        summary="One wave: each event's turn, how far it is, and why it waits",
        responses={200: WaveSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, wave_id: int) -> Response:
        return Response(shown(wave_id, self))

    @extend_schema(
        operation_id="stop_wave",
        summary="Stop a wave: what waits is withdrawn, what is on its way goes on",
        request=StopWaveSerializer,
        responses={200: WaveSerializer, **problem_answers(404, 409, 422)},
    )
    def delete(self, request: Request, wave_id: int) -> Response:
        wanted = self.read(StopWaveSerializer, request)
        operations.stop(
            wave_id=wave_id,
            by=person_of(request),
            via="api",
            reason=wanted["comment"],
            token_name=token_name(request),
            now=self.now,
        )
        return Response(shown(wave_id, self))


def shown(wave_id: int, call: Call) -> dict[str, Any]:
    """One wave as JSON values. Raises Problem `unknown-wave`."""
    found = waves.detail(wave_id=wave_id, now=call.now)
    if found is None:
        raise Problem("unknown-wave")
    values: dict[str, Any] = WaveSerializer(found, context={"now": call.now}).data
    return values
