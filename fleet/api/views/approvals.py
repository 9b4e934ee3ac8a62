"""Approving, withdrawing, and how far it got."""

import re
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, problem_answers
from fleet.api.problems import CONTENT_TYPE, Problem, refusal
from fleet.api.shapes.approvals import ApprovalSerializer
from fleet.api.shapes.requests import ApproveSerializer, WithdrawSerializer
from fleet.operations import deciding
from fleet.operations.errors import Refused
from fleet.operations.idempotency import Answer, answer_once, fingerprint
from fleet.projections import approvals

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Up to 200 printable characters. The same key and request get the stored answer, for 24 hours.",
)


class EventApprovals(Call):
    needs = {"POST": "approve"}

    @extend_schema(
        operation_id="approve_event",
        summary="Approve: start the event now",
        description="For every machine in `Resources`. Azure starts it once; nobody can postpone it.",
        parameters=[IDEMPOTENCY_KEY],
        request=ApproveSerializer,
        responses={201: ApprovalSerializer, **problem_answers(404, 409, 422)},
    )
    def post(self, request: Request, event_id: str) -> Response:
        wanted = self.read(ApproveSerializer, request)
        key = idempotency_key(request)
        if key is None:
            return Response(self.granted(request, event_id, wanted), status=201)
        answer = answer_once(
            user=person_of(request),
            key=key,
            request=fingerprint(method="POST", path=request.path, body=request.data),
            now=self.now,
            act=lambda: self.attempt(request, event_id, wanted),
        )
        headers = {"Idempotency-Replayed": "true"} if answer.repeated else {}
        kind = CONTENT_TYPE if answer.status >= 400 else None
        return Response(answer.body, status=answer.status, headers=headers, content_type=kind)

    def granted(self, request: Request, event_id: str, wanted: dict[str, Any]) -> Any:
        """The approval as JSON values. Raises Refused."""
        approval = deciding.grant(
            event_id=event_id,
            by=person_of(request),
            via="api",
            comment=wanted["comment"],
            expected_version=wanted["expected_version"],
            token_name=token_name(request),
            now=self.now,
        )
        return shown(approval.pk, self)

    def attempt(self, request: Request, event_id: str, wanted: dict[str, Any]) -> Answer:
        """Grant, or the refusal; both are answers that a repeat gets again."""
        try:
            return Answer(status=201, body=self.granted(request, event_id, wanted))
        except Refused as error:
            body = refusal(error)
            return Answer(status=body["status"], body=body)


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
        deciding.withdraw(
            approval_id=approval_id,
            by=person_of(request),
            via="api",
            comment=wanted["comment"],
            token_name=token_name(request),
            now=self.now,
        )
        return Response(shown(approval_id, self))


def shown(approval_id: int, call: Call) -> dict[str, Any]:
    """One approval as JSON values. Raises Problem `unknown-approval`."""
    found = approvals.detail(approval_id=approval_id, now=call.now)
    if found is None:
        raise Problem("unknown-approval")
    values: dict[str, Any] = ApprovalSerializer(found, context={"now": call.now}).data
    return values


def idempotency_key(request: Request) -> str | None:
    """The header, if there is one. Raises Problem `validation`."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?", key):
        message = "Use 1 to 200 printable ASCII characters."
        raise Problem("validation", errors=[{"field": "Idempotency-Key", "message": message}])
    return key
