"""Approving, agreeing as the second person, withdrawing, and how far it got."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, problem_answers
from fleet.api.problems import Problem
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once
from fleet.api.shapes.approvals import ApprovalSerializer
from fleet.api.shapes.deciding import ApproveSerializer, ConsentSerializer
from fleet.api.shapes.requests import WithdrawSerializer
from fleet.operations import deciding, reconsidering
from fleet.projections import relaying


class EventApprovals(Call):
    needs = {"POST": "approve"}

    @extend_schema(
        operation_id="approve_event",
        summary="Approve: start the event now, once it is prepared, or at a time",
        description=(
            "For every machine in `Resources`. Azure starts it once; nobody can postpone it. Where a guard or the set"
            " asks for a second person, the approval answers with the state `PROPOSED`."
        ),
        parameters=[IDEMPOTENCY_KEY],
        request=ApproveSerializer,
        responses={201: ApprovalSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(ApproveSerializer, request)
        version = wanted["expected_version"]
        return answered(once(request, lambda: granted(self, request, event_id, wanted, version), now=self.now))


class Approval(Call):
    needs = {"DELETE": "approve"}

    @extend_schema(
        operation_id="get_approval",
        summary="How far an approval got",
        responses={200: ApprovalSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, approval_id: int) -> Response:
        return Response(shown(approval_id, self))

    @extend_schema(
        operation_id="withdraw_approval",
        summary="Withdraw an approval before it was sent to a machine",
        request=WithdrawSerializer,
        responses={200: ApprovalSerializer, **problem_answers(404, 409, 422)},
    )
    def delete(self, request: Request, approval_id: int) -> Response:
        wanted = self.read(WithdrawSerializer, request)
        reconsidering.withdraw(
            approval_id=approval_id,
            by=person_of(request),
            via="api",
            comment=wanted["comment"],
            token_name=token_name(request),
            now=self.now,
        )
        return Response(shown(approval_id, self))


class Consents(Call):
    needs = {"POST": "approve"}

    @extend_schema(
        operation_id="consent_to_approval",
        summary="Agree to a proposal as the second person",
        description=(
            "Needs the right of an approver, and somebody else than who proposed it. The guards are asked again: one"
            " that is new takes a reason in `override`."
        ),
        parameters=[IDEMPOTENCY_KEY],
        request=ConsentSerializer,
        responses={201: ApprovalSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request, approval_id: int) -> Response:
        wanted = self.read(ConsentSerializer, request)

        def act() -> Any:
            reconsidering.consent(
                approval_id=approval_id,
                by=person_of(request),
                via="api",
                comment=wanted["comment"],
                overrides=wanted["override"],
                token_name=token_name(request),
                now=self.now,
            )
            return shown(approval_id, self)

        return answered(once(request, act, now=self.now))


def granted(call: Call, request: Request, event_id: str, plan: Mapping[str, Any], version: int | None) -> Any:
    """The new approval as JSON values. Raises Refused."""
    when, due_at = plan["when"]
    approval = deciding.grant(
        event_id=event_id,
        by=person_of(request),
        via="api",
        comment=plan["comment"],
        when=when,
        due_at=due_at,
        overrides=plan["override"],
        expected_version=version,
        token_name=token_name(request),
        now=call.now,
    )
    return shown(approval.pk, call)


def shown(approval_id: int, call: Call) -> dict[str, Any]:
    """One approval as JSON values. Raises Problem `unknown-approval`."""
    found = relaying.approval(approval_id=approval_id, now=call.now)
    if found is None:
        raise Problem("unknown-approval")
    values: dict[str, Any] = ApprovalSerializer(found, context={"now": call.now}).data
    return values
