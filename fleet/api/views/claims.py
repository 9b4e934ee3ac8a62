"""Claims and holds: local words about an event that never go to Azure."""

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.shapes.approvals import ClaimShape, HoldShape
from fleet.api.shapes.decisions import ClaimRequestSerializer, HoldRequestSerializer
from fleet.operations.approvals import claims
from fleet.projections.desk import attention


class EventClaims(Call):
    @describe(
        "claim_event",
        "Claim: say that you are on it",
        "Local: it goes to nobody but the other people, and ends with the event.",
        needs="approve",
        answer=ClaimShape,
        body=ClaimRequestSerializer,
        repeatable=True,
        problems=("unknown-event", "already-claimed", "too-late"),
    )
    def post(self, event_id: str) -> attention.ClaimTold:
        return claimed(self, event_id)

    @describe(
        "give_claim_back",
        "Give a claim back",
        "One's own; an approver may end anybody's.",
        needs="approve",
        answer=ClaimShape,
        problems=("not-claimed",),
    )
    def delete(self, event_id: str) -> attention.ClaimTold:
        return attention.claim_told(claims.give_back(event_id=event_id, actor=self.actor, now=self.now))


class EventHolds(Call):
    @describe(
        "hold_event",
        "Leave it to Azure (a hold): do not approve, let it run",
        "Keeps rules away and asks people for a reason. Azure is told nothing and may start the event from"
        " NotBefore on.",
        needs="approve",
        answer=HoldShape,
        body=HoldRequestSerializer,
        repeatable=True,
        problems=("unknown-event", "already-decided", "already-held", "too-late"),
    )
    def post(self, event_id: str) -> attention.HoldTold:
        row = claims.hold(event_id=event_id, actor=self.actor.because(self.wanted["reason"]), now=self.now)
        return attention.hold_told(row)

    @describe(
        "lift_hold",
        "Take back what was left to Azure (lift a hold)",
        (
            "Rules and people may decide again. A hold that a rule has set can be lifted by anybody who may"
            " decide there."
        ),
        needs="approve",
        answer=HoldShape,
        problems=("not-held",),
    )
    def delete(self, event_id: str) -> attention.HoldTold:
        return attention.hold_told(claims.lift(event_id=event_id, actor=self.actor, now=self.now))


def claimed(call: Call, event_id: str) -> attention.ClaimTold:
    """The claim of an event, as the call wants it. Raises Refused."""
    row = claims.claim(
        event_id=event_id,
        actor=call.actor.because(call.wanted["comment"]),
        now=call.now,
        take_over=call.wanted["take_over"],
    )
    return attention.claim_told(row)
