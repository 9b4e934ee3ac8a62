"""Claims and holds: local words about an event that never go to Azure."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import actor_of
from fleet.api.calls import Call, describe
from fleet.api.repeats import IDEMPOTENCY_KEY
from fleet.api.shapes.approvals import ClaimShape, HoldShape
from fleet.api.shapes.decisions import ClaimRequestSerializer, HoldRequestSerializer
from fleet.operations.approvals import claims
from fleet.projections.desk import attention


class EventClaims(Call):
    needs = {"POST": "approve", "DELETE": "approve"}

    @describe(
        "claim_event",
        "Claim: say that you are on it",
        answer=ClaimShape,
        status=201,
        body=ClaimRequestSerializer,
        problems=(404, 409, 422),
        description="Local: it goes to nobody but the other people, and ends with the event.",
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(ClaimRequestSerializer, request)
        return self.once(request, lambda: claimed(self, request, event_id, wanted))

    @describe(
        "give_claim_back",
        "Give a claim back",
        answer=ClaimShape,
        problems=(404, 409),
        description="One's own; an approver may end anybody's.",
    )
    def delete(self, request: Request, event_id: str) -> Response:
        row = claims.give_back(event_id=event_id, actor=actor_of(request), now=self.now)
        return Response(ClaimShape(attention.claim_told(row)).data)


class EventHolds(Call):
    needs = {"POST": "approve", "DELETE": "approve"}

    @describe(
        "hold_event",
        "Hold: do not approve, let it run",
        answer=HoldShape,
        status=201,
        body=HoldRequestSerializer,
        problems=(404, 409, 422),
        description="Keeps rules away and asks people for a reason. Azure is told nothing and may start the event from"
        " NotBefore on.",
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(HoldRequestSerializer, request)

        def act() -> Any:
            row = claims.hold(
                event_id=event_id,
                actor=actor_of(request).because(wanted["reason"]),
                now=self.now,
            )
            return HoldShape(attention.hold_told(row)).data

        return self.once(request, act)

    @describe("lift_hold", "Lift a hold", answer=HoldShape, problems=(404, 409))
    def delete(self, request: Request, event_id: str) -> Response:
        row = claims.lift(event_id=event_id, actor=actor_of(request), now=self.now)
        return Response(HoldShape(attention.hold_told(row)).data)


def claimed(call: Call, request: Request, event_id: str, wanted: dict[str, Any]) -> Any:
    """The claim as JSON values. Raises Refused."""
    row = claims.claim(
        event_id=event_id,
        actor=actor_of(request).because(wanted["comment"]),
        now=call.now,
        take_over=wanted["take_over"],
    )
    return ClaimShape(attention.claim_told(row)).data
