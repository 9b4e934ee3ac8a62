"""Approving, agreeing as the second person, withdrawing, and how far it got."""

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import actor_of
from fleet.api.calls import Call, describe
from fleet.api.repeats import IDEMPOTENCY_KEY
from fleet.api.shapes.approvals import ApprovalShape
from fleet.api.shapes.decisions import ApproveSerializer, ConsentSerializer
from fleet.api.shapes.requests import WithdrawSerializer
from fleet.operations.approvals import approve, consent, withdraw
from fleet.operations.approvals.approve import Plan
from fleet.projections import orders


class EventApprovals(Call):
    needs = {"POST": "approve"}

    @describe(
        "approve_event",
        "Approve: start the event now, once it is prepared, or at a time",
        answer=ApprovalShape,
        status=201,
        body=ApproveSerializer,
        problems=(404, 409, 422),
        description=(
            "For every machine in `Resources`. Azure starts it once; nobody can postpone it. Where a guard or the set"
            " asks for a second person, the approval answers with the state `PROPOSED`."
        ),
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(ApproveSerializer, request)
        version = wanted["expected_version"]
        return self.once(request, lambda: granted(self, request, event_id, wanted, version))


class Approval(Call):
    needs = {"DELETE": "approve"}

    @describe("get_approval", "How far an approval got", answer=ApprovalShape, problems=(404,))
    def get(self, request: Request, approval_id: int) -> Response:
        return Response(shown(approval_id, self))

    @describe(
        "withdraw_approval",
        "Withdraw an approval before it was sent to a machine",
        answer=ApprovalShape,
        body=WithdrawSerializer,
        problems=(404, 409, 422),
    )
    def delete(self, request: Request, approval_id: int) -> Response:
        wanted = self.read(WithdrawSerializer, request)
        withdraw.withdraw(
            approval_id=approval_id,
            actor=actor_of(request).because(wanted["comment"]),
            now=self.now,
        )
        return Response(shown(approval_id, self))


class Consents(Call):
    needs = {"POST": "approve"}

    @describe(
        "consent_to_approval",
        "Agree to a proposal as the second person",
        answer=ApprovalShape,
        status=201,
        body=ConsentSerializer,
        problems=(404, 409, 422),
        description=(
            "Needs the right of an approver, and somebody else than who proposed it. The guards are asked again: one"
            " that is new takes a reason in `override`."
        ),
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, approval_id: int) -> Response:
        wanted = self.read(ConsentSerializer, request)

        def act() -> Any:
            consent.consent(
                approval_id=approval_id,
                actor=actor_of(request).because(wanted["comment"]),
                overrides=wanted["override"],
                now=self.now,
            )
            return shown(approval_id, self)

        return self.once(request, act)


def granted(call: Call, request: Request, event_id: str, wanted: Mapping[str, Any], version: int | None) -> Any:
    """The new approval as JSON values. Raises Refused."""
    when, due_at = wanted["when"]
    approval = approve.grant(
        event_id=event_id,
        actor=actor_of(request).because(wanted["comment"]),
        plan=Plan(when=when, due_at=due_at, overrides=wanted["override"], expected_version=version),
        now=call.now,
    )
    return shown(approval.pk, call)


def shown(approval_id: int, call: Call) -> Any:
    """One approval as JSON values. Raises Problem `unknown-approval`."""
    return call.values(ApprovalShape, orders.approval(approval_id=approval_id, now=call.now), "unknown-approval")
