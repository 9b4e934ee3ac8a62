"""Approving, agreeing as the second person, withdrawing, and how far it got."""

from fleet.api.calls import Call
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import CHANGED_SINCE, PLACES
from fleet.api.shapes.approvals import ApprovalShape
from fleet.api.shapes.decisions import ApproveSerializer, ConsentSerializer
from fleet.api.shapes.requests import WhySerializer
from fleet.operations import clock
from fleet.operations.approvals import approve, conditions
from fleet.operations.approvals.approve import Judged, Plan
from fleet.projections import approvals, orders
from fleet.projections.approvals import ApprovalRow
from fleet.projections.filters import ApprovalFilter
from fleet.projections.pages import Page

UNKNOWN = ("unknown-approval",)
APPROVAL_FILTERS = filters_of(
    ApprovalFilter,
    {
        **PLACES,
        "state": "A state; may be repeated.",
        "event": "An EventId, in any case; may be repeated.",
        "since": "Decided at or after this time.",
        "until": "Decided before this time.",
        "changed_since": CHANGED_SINCE,
    },
)


class EventApprovals(Call):
    @describe(
        "approve_event",
        "Approve: start the event now, once it is prepared, or at a time",
        "For every machine in `Resources`. Azure starts it once; nobody can postpone it. Where a guard or the set"
        " asks for a second person, the approval answers with the state `PROPOSED`.",
        needs="approve",
        answer=ApprovalShape,
        body=ApproveSerializer,
        matches=True,
        status=201,
        location="approvals/{id}/",
        problems=("unknown-event", "already-decided", "guarded", "too-late", "version-changed", "stopped"),
    )
    def post(self, event_id: str) -> ApprovalRow | None:
        return granted(self, event_id, self.wanted["expected_version"])


class Approvals(Call):
    @describe(
        "list_approvals",
        "Approvals, the newest decision first",
        "Those that wait or are on their way, and those that are over, each with its orders.",
        page=ApprovalShape,
        parameters=[*APPROVAL_FILTERS, ordering("decided_at")],
    )
    def get(self) -> Page[ApprovalRow]:
        return approvals.listing(now=self.now, approvals=self.filtered(ApprovalFilter), **self.place)


class Approval(Call):
    @describe(
        "get_approval",
        "How far an approval got",
        (
            "Its state, what it waits for, and every order that was given to a machine. Ask again until"
            " `closed_at` is set; `seconds_left` of an order counts from `server_time`."
        ),
        answer=ApprovalShape,
        missing=UNKNOWN,
    )
    def get(self, approval_id: int) -> ApprovalRow | None:
        return orders.approval(approval_id=approval_id, now=self.now)

    @describe(
        "withdraw_approval",
        "Withdraw an approval before it was sent to a machine",
        ("Possible as long as no machine was offered an order; afterwards the answer is `too-late`."),
        needs="approve",
        answer=ApprovalShape,
        body=WhySerializer,
        problems=("too-late",),
    )
    def delete(self, approval_id: int) -> ApprovalRow | None:
        conditions.withdraw(approval_id=approval_id, actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return orders.approval(approval_id=approval_id, now=self.now)


class Consents(Call):
    @describe(
        "consent_to_approval",
        "Agree to a proposal as the second person",
        "Needs the right of an approver, and somebody else than who proposed it. The guards are asked again: one"
        " that is new takes a reason in `override`. `If-Match` names the `ETag` of the event.",
        needs="approve",
        answer=ApprovalShape,
        body=ConsentSerializer,
        matches=True,
        status=201,
        location="approvals/{id}/",
        problems=("guarded", "too-late", "version-changed", "stopped"),
    )
    def post(self, approval_id: int) -> ApprovalRow | None:
        conditions.consent(
            approval_id=approval_id,
            actor=self.actor.because(self.wanted["comment"]),
            overrides=self.wanted["override"],
            shown=self.wanted["shown"],
            expected_version=self.wanted["expected_version"],
            expected=self.expected,
            now=self.now,
        )
        return orders.approval(approval_id=approval_id, now=self.now)


def granted(call: Call, event_id: str, version: int | None) -> ApprovalRow | None:
    """The new approval of an event, as the call wants it. Raises Refused."""
    return orders.approval(approval_id=grant(call, event_id, version), now=call.now)


def grant(call: Call, event_id: str, version: int | None, ahead: Judged | None = None) -> int:
    """The same by its row id, without reading what can be told of it."""
    when, due_at = call.wanted["when"]
    approval = approve.grant(
        event_id=event_id,
        actor=call.actor.because(call.wanted["comment"]),
        plan=Plan(
            when=when,
            due_at=due_at,
            overrides=call.wanted["override"],
            shown=call.wanted["shown"],
            expected_version=version,
            expected=call.expected,
        ),
        # Not the call's: an order is given some seconds from here, and a call about many takes longer than that.
        now=clock.now(),
        ahead=ahead,
    )
    return approval.pk
