"""API calls about approvals: grant, consent as the second approver, withdraw, and read the progress."""

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes.requests import (
    ApproveSerializer,
    ClaimRequestSerializer,
    ConsentSerializer,
    HoldRequestSerializer,
    SilenceRequestSerializer,
    WhySerializer,
)
from fleet.operations import clock
from fleet.operations.approvals import approve, claims, conditions
from fleet.operations.approvals.approve import LockedFacts, Plan
from fleet.projections import approvals, orders
from fleet.projections.approvals import ApprovalRow
from fleet.projections.events import rows
from fleet.projections.filters import ApprovalFilter
from fleet.projections.timeline import entries

DECISION_PROBLEMS = ("guarded", "too-late", "version-changed", "stopped")


class EventApprovals(Call, at="events/<str:event_id>/approvals/"):
    @describe(
        "approve_event",
        needs="approve",
        body=ApproveSerializer,
        matches=True,
        location="approvals/{id}/",
        problems=(*DECISION_PROBLEMS, "already-decided"),
    )
    def post(self, event_id: str) -> ApprovalRow | None:
        """Approve an event: start it now, when its machines are prepared, or at a time

        The approval covers every machine in `Resources`. Azure starts the event once, and no one can postpone it then.
        If a guard or the set requires a second person, the answer has the state `PROPOSED`.
        """
        approval_id = grant(self, event_id, self.wanted["expected_version"])
        return orders.approval(approval_id=approval_id, now=self.now)


@list_call("list_approvals", approvals.listing, ApprovalFilter, "approvals", orders=("decided_at",))
class Approvals(Call, at="approvals/"):
    """List approvals, newest decision first

    Open and closed approvals, each with its orders.
    """


@detail_call("get_approval", orders.approval)
class Approval(Call, at="approvals/<int:approval_id>/"):
    """Get an approval and its progress

    Its state, what it waits for, and every order that was given to a machine. Poll until `closed_at` is set.
    `seconds_left` of an order counts from `server_time`.
    """

    @describe("withdraw_approval", needs="approve", body=WhySerializer, problems=("too-late",))
    def delete(self, approval_id: int) -> ApprovalRow | None:
        """Withdraw an approval before it is sent to a machine

        Once a machine was offered an order, the answer is the problem `too-late`.
        """
        conditions.withdraw(approval_id=approval_id, actor=self.commented, now=self.now)
        return orders.approval(approval_id=approval_id, now=self.now)


class Consents(Call, at="approvals/<int:approval_id>/consents/"):
    @describe(
        "consent_to_approval",
        needs="approve",
        body=ConsentSerializer,
        matches=True,
        location="approvals/{id}/",
        problems=DECISION_PROBLEMS,
    )
    def post(self, approval_id: int) -> ApprovalRow | None:
        """Consent to a proposal as the second person

        The caller needs the right to approve and must not be the user who proposed it. The guards are evaluated again:
        a new one needs a reason in `override`. `If-Match` takes the `ETag` of the event.
        """
        conditions.consent(
            approval_id=approval_id,
            actor=self.commented,
            overrides=self.wanted["override"],
            shown=self.wanted["shown"],
            expected_version=self.wanted["expected_version"],
            expected=self.expected,
            now=self.now,
        )
        return orders.approval(approval_id=approval_id, now=self.now)


def grant(call: Call, event_id: str, version: int | None, ahead: LockedFacts | None = None) -> int:
    """Approve an event as the call requests it, and return the approval's row id. Raises Refused."""
    when, due_at = call.wanted["when"]
    approval = approve.grant(
        event_id=event_id,
        actor=call.commented,
        plan=Plan(
            when=when,
            due_at=due_at,
            overrides=call.wanted["override"],
            shown=call.wanted["shown"],
            expected_version=version,
            expected=call.expected,
        ),
        # Not the time of the call: an order expires some seconds from here, and a bulk call takes longer than that.
        now=clock.now(),
        ahead=ahead,
    )
    return approval.pk


# Claims and holds: stored in Drydock only, and never sent to Azure.

UNCLAIMED = ("not-found", "No user has claimed this event.")
NOT_HELD = ("not-found", "No user or rule has left this event to Azure.")


@detail_call("get_claim", rows.standing_claim, missing=UNCLAIMED)
class EventClaims(Call, at="events/<str:event_id>/claims/"):
    """Get the claim of an event

    404 if no user has claimed it.
    """

    @describe(
        "claim_event",
        needs="approve",
        body=ClaimRequestSerializer,
        matches=True,
        location="events/{event_id}/claims/",
        problems=("already-claimed", "too-late"),
    )
    def post(self, event_id: str) -> rows.ClaimTold:
        """Claim an event: show other users that you are working on it

        With `assign_to`, for another user, who needs the right to decide the event. A claim is visible in Drydock only
        and ends with the event. Azure gets no message.
        """
        return claimed(self, event_id)

    @describe("give_claim_back", needs="approve", matches=True, problems=("not-claimed",))
    def delete(self, event_id: str) -> rows.ClaimTold:
        """Release a claim

        Users release their own claims; approvers may release every claim.
        """
        row = claims.give_back(event_id=event_id, actor=self.actor, now=self.now, expected=self.expected)
        return rows.claim_told(row)


@detail_call("get_hold", rows.standing_hold, missing=NOT_HELD)
class EventHolds(Call, at="events/<str:event_id>/holds/"):
    """Get the hold of an event

    404 if no user or rule has left the event to Azure.
    """

    @describe(
        "hold_event",
        needs="approve",
        body=HoldRequestSerializer,
        matches=True,
        location="events/{event_id}/holds/",
        problems=("already-decided", "already-held", "too-late"),
    )
    def post(self, event_id: str) -> rows.HoldTold:
        """Hold an event: leave it to Azure instead of approving it

        While the hold lasts, rules do not decide and users need a reason to approve. Azure gets no message and may
        start the event from NotBefore on.
        """
        actor = self.actor.because(self.wanted["reason"])
        row = claims.hold(event_id=event_id, actor=actor, now=self.now, expected=self.expected)
        return rows.hold_told(row)

    @describe("lift_hold", needs="approve", matches=True, problems=("not-held",))
    def delete(self, event_id: str) -> rows.HoldTold:
        """Lift a hold

        Rules and users may decide again. Every user who may decide about events of this set may lift it, also if a rule
        set it.
        """
        row = claims.lift(event_id=event_id, actor=self.actor, now=self.now, expected=self.expected)
        return rows.hold_told(row)


class EventNotes(Call, at="events/<str:event_id>/notes/"):
    @describe("add_event_note", needs="approve", body=WhySerializer)
    def post(self, event_id: str) -> entries.TimelineRow:
        """Add a note (`comment`) to an event, also after its end

        Returns the entry of its timeline, which cannot be changed or deleted. Users who may decide the event can add
        notes.
        """
        claims.note(event_id=event_id, actor=self.commented, now=self.now)
        return entries.notes_of_event(event_id=event_id, size=1).results[0]


class EventSilence(Call, at="events/<str:event_id>/silence/"):
    @describe("silence_event", needs="approve", body=SilenceRequestSerializer, problems=("unknown-event",))
    def post(self, event_id: str) -> None:
        """Hold back notifications about an event or its set, until a time

        Critical notifications, failed approvals and results are still sent. Channels for Alertmanager also silence
        the machines of the event, as their lines state.
        """
        wanted = {name: self.wanted[name] for name in ("whole_set", "until")}
        claims.silence(event_id=event_id, actor=self.commented, now=self.now, **wanted)


def claimed(call: Call, event_id: str, version: int | None = None) -> rows.ClaimTold:
    """Claim an event as the call requests it, and return the claim. Raises Refused."""
    row = claims.claim(
        event_id=event_id,
        actor=call.commented,
        now=call.now,
        take_over=call.wanted["take_over"],
        assign_to=call.wanted["assign_to"],
        expected=call.expected,
        expected_version=version,
    )
    return rows.claim_told(row)
