"""Claims and holds: local words about an event that never go to Azure."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, problem_answers
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once
from fleet.api.shapes.deciding import ClaimRequestSerializer, ClaimSerializer, HoldRequestSerializer, HoldSerializer
from fleet.operations import claiming
from fleet.projections import attention


class EventClaims(Call):
    needs = {"POST": "approve", "DELETE": "approve"}

    @extend_schema(
        operation_id="claim_event",
        summary="Claim: say that you are on it",
        description="Local: it goes to nobody but the other people, and ends with the event.",
        parameters=[IDEMPOTENCY_KEY],
        request=ClaimRequestSerializer,
        responses={201: ClaimSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(ClaimRequestSerializer, request)
        return answered(once(request, lambda: claimed(self, request, event_id, wanted), now=self.now))

    @extend_schema(
        operation_id="give_claim_back",
        summary="Give a claim back",
        description="One's own; an approver may end anybody's.",
        responses={200: ClaimSerializer, **problem_answers(404, 409)},
    )
    def delete(self, request: Request, event_id: str) -> Response:
        row = claiming.give_back(
            event_id=event_id, by=person_of(request), via="api", now=self.now, token_name=token_name(request)
        )
        return Response(ClaimSerializer(attention.claim_told(row)).data)


class EventHolds(Call):
    needs = {"POST": "approve", "DELETE": "approve"}

    @extend_schema(
        operation_id="hold_event",
        summary="Hold: do not approve, let it run",
        description=(
            "Keeps rules away and asks people for a reason. Azure is told nothing and may start the event from"
            " NotBefore on."
        ),
        parameters=[IDEMPOTENCY_KEY],
        request=HoldRequestSerializer,
        responses={201: HoldSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(HoldRequestSerializer, request)

        def act() -> Any:
            row = claiming.hold(
                event_id=event_id,
                by=person_of(request),
                via="api",
                now=self.now,
                reason=wanted["reason"],
                token_name=token_name(request),
            )
            return HoldSerializer(attention.hold_told(row)).data

        return answered(once(request, act, now=self.now))

    @extend_schema(
        operation_id="lift_hold",
        summary="Lift a hold",
        responses={200: HoldSerializer, **problem_answers(404, 409)},
    )
    def delete(self, request: Request, event_id: str) -> Response:
        row = claiming.lift(
            event_id=event_id, by=person_of(request), via="api", now=self.now, token_name=token_name(request)
        )
        return Response(HoldSerializer(attention.hold_told(row)).data)


def claimed(call: Call, request: Request, event_id: str, wanted: dict[str, Any]) -> Any:
    """The claim as JSON values. Raises Refused."""
    row = claiming.claim(
        event_id=event_id,
        by=person_of(request),
        via="api",
        now=call.now,
        comment=wanted["comment"],
        take_over=wanted["take_over"],
        token_name=token_name(request),
    )
    return ClaimSerializer(attention.claim_told(row)).data
