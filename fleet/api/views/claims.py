"""Claims and holds: local words about an event that never go to Azure."""

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.shapes.approvals import ClaimShape, HoldShape
from fleet.api.shapes.decisions import ClaimRequestSerializer, HoldRequestSerializer
from fleet.operations.approvals import claims
from fleet.projections.events import rows

UNCLAIMED = ("not-found", "Nobody has claimed this event.")
NOT_HELD = ("not-found", "Nobody has left this event to Azure.")


class EventClaims(Call):
    @describe(
        "get_claim",
        "Who is on it",
        "The claim that stands; nothing is found where nobody has claimed the event.",
        answer=ClaimShape,
        missing=UNCLAIMED,
    )
    def get(self, event_id: str) -> rows.ClaimTold | None:
        return rows.standing_claim(event_id=event_id)

    @describe(
        "claim_event",
        "Claim: say that you are on it",
        "Local: it goes to nobody but the other people, and ends with the event.",
        needs="approve",
        answer=ClaimShape,
        body=ClaimRequestSerializer,
        matches=True,
        status=201,
        location="events/{event_id}/claims/",
        problems=("unknown-event", "already-claimed", "too-late"),
    )
    def post(self, event_id: str) -> rows.ClaimTold:
        return claimed(self, event_id)

    @describe(
        "give_claim_back",
        "Give a claim back",
        "One's own; an approver may end anybody's.",
        needs="approve",
        answer=ClaimShape,
        matches=True,
        problems=("not-claimed",),
    )
    def delete(self, event_id: str) -> rows.ClaimTold:
        row = claims.give_back(event_id=event_id, actor=self.actor, now=self.now, expected=self.expected)
        return rows.claim_told(row)


class EventHolds(Call):
    @describe(
        "get_hold",
        "Who has left it to Azure",
        "The hold that stands; nothing is found where nobody has left the event to Azure.",
        answer=HoldShape,
        missing=NOT_HELD,
    )
    def get(self, event_id: str) -> rows.HoldTold | None:
        return rows.standing_hold(event_id=event_id)

    @describe(
        "hold_event",
        "Leave it to Azure (a hold): do not approve, let it run",
        "Keeps rules away and asks people for a reason. Azure is told nothing and may start the event from"
        " NotBefore on.",
        needs="approve",
        answer=HoldShape,
        body=HoldRequestSerializer,
        matches=True,
        status=201,
        location="events/{event_id}/holds/",
        problems=("unknown-event", "already-decided", "already-held", "too-late"),
    )
    def post(self, event_id: str) -> rows.HoldTold:
        actor = self.actor.because(self.wanted["reason"])
        row = claims.hold(event_id=event_id, actor=actor, now=self.now, expected=self.expected)
        return rows.hold_told(row)

    @describe(
        "lift_hold",
        "Take back what was left to Azure (lift a hold)",
        (
            "Rules and people may decide again. A hold that a rule has set can be lifted by anybody who may"
            " decide there."
        ),
        needs="approve",
        answer=HoldShape,
        matches=True,
        problems=("not-held",),
    )
    def delete(self, event_id: str) -> rows.HoldTold:
        row = claims.lift(event_id=event_id, actor=self.actor, now=self.now, expected=self.expected)
        return rows.hold_told(row)


def claimed(call: Call, event_id: str, version: int | None = None) -> rows.ClaimTold:
    """The claim of an event, as the call wants it. Raises Refused."""
    row = claims.claim(
        event_id=event_id,
        actor=call.actor.because(call.wanted["comment"]),
        now=call.now,
        take_over=call.wanted["take_over"],
        expected=call.expected,
        expected_version=version,
    )
    return rows.claim_told(row)
