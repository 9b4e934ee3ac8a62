"""API calls about decisions: approvals, claims and holds of one event, and of several at once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import OperationalError
from django.http import QueryDict
from django.utils import timezone
from rest_framework.response import Response

from fleet.api.calls import Call, filtered
from fleet.api.problems import waits, wrong
from fleet.api.repeats import answered, completed, idempotency_key, once
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes import answers as shapes
from fleet.api.shapes import requests
from fleet.domain.reasons import Refused
from fleet.operations import clock
from fleet.operations.approvals import approve, claims, conditions
from fleet.operations.approvals.approve import LockedFacts, Plan
from fleet.operations.idempotency import Answer
from fleet.projections import approvals, orders
from fleet.projections.approvals import ApprovalRow
from fleet.projections.events import rows
from fleet.projections.filters import ApprovalFilter, EventFilter
from fleet.projections.timeline import entries

Body = dict[str, Any]
DECISION_PROBLEMS = ("guarded", "too-late", "version-changed", "stopped")


class EventApprovals(Call, at="events/<str:event_id>/approvals/"):
    @describe(
        "approve_event",
        needs="approve",
        body=requests.ApproveSerializer,
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

    @describe("withdraw_approval", needs="approve", body=requests.WhySerializer, problems=("too-late",))
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
        body=requests.ConsentSerializer,
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


@detail_call("get_claim", rows.standing_claim, missing=("not-found", "No user has claimed this event."))
class EventClaims(Call, at="events/<str:event_id>/claims/"):
    """Get the claim of an event

    404 if no user has claimed it.
    """

    @describe(
        "claim_event",
        needs="approve",
        body=requests.ClaimRequestSerializer,
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


@detail_call("get_hold", rows.standing_hold, missing=("not-found", "No user or rule has left this event to Azure."))
class EventHolds(Call, at="events/<str:event_id>/holds/"):
    """Get the hold of an event

    404 if no user or rule has left the event to Azure.
    """

    @describe(
        "hold_event",
        needs="approve",
        body=requests.HoldRequestSerializer,
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
    @describe("add_event_note", needs="approve", body=requests.WhySerializer)
    def post(self, event_id: str) -> entries.TimelineRow:
        """Add a note (`comment`) to an event, also after its end

        Returns the entry of its timeline, which cannot be changed or deleted. Users who may decide the event can add
        notes.
        """
        claims.note(event_id=event_id, actor=self.commented, now=self.now)
        return entries.notes_of_event(event_id=event_id, size=1).results[0]


class EventSilence(Call, at="events/<str:event_id>/silence/"):
    @describe("silence_event", needs="approve", body=requests.SilenceRequestSerializer, problems=("unknown-event",))
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


# Several events: each is decided separately and has its own result.

describe_bulk = partial(describe, needs="approve", by_parts=True, problems=("count-changed",))


class BulkApprovals(Call, at="bulk/approvals/"):
    @describe_bulk("approve_events", answer=shapes.BulkApprovals, body=requests.BulkApproveSerializer)
    def post(self) -> Response:
        """Approve several events, with one result for each

        Each event is decided separately: events of one service in the order given, with a filter by time left. A
        refusal does not stop the others. With an `Idempotency-Key`, a repeated call continues where the first one was
        cut off.
        """
        versions = _versions(self)

        def act(event_id: str, ahead: LockedFacts | None) -> Body:
            return {"id": grant(self, event_id, versions.get(event_id), ahead)}

        return each(self, "approval", act, _approvals)


class BulkClaims(Call, at="bulk/claims/"):
    @describe_bulk("claim_events", answer=shapes.BulkClaims, body=requests.BulkClaimSerializer)
    def post(self) -> Response:
        """Claim several events, with one result for each

        Each event is decided separately: events of one service in the order given, with a filter by time left. A
        refusal does not stop the others. With an `Idempotency-Key`, a repeated call continues where the first one was
        cut off.
        """
        versions = _versions(self)

        def act(event_id: str, _: LockedFacts | None) -> Body:
            body: Body = self.values(shapes.ClaimShape, claimed(self, event_id, versions.get(event_id)))
            return body

        return each(self, "claim", act)


def _versions(call: Call) -> dict[str, int]:
    """Return the versions that the caller has seen, by EventId in upper case."""
    return {event_id.strip().upper(): version for event_id, version in call.wanted["expected_versions"].items()}


def _approvals(call: Call, answers: Sequence[Body]) -> list[Body]:
    """Return the full rows of the approvals in `answers`, which contain only ids. They are read together after the last
    decision.
    """
    found = orders.approvals([one["id"] for one in answers], now=call.now)
    return [call.values(shapes.ApprovalShape, found[one["id"]]) if one["id"] in found else one for one in answers]


def each(
    call: Call,
    what: str,
    act: Callable[[str, LockedFacts | None], Body],
    load: Callable[[Call, Sequence[Body]], list[Body]] | None = None,
) -> Response:
    """Call `act` for each selected event, and return the response with all results. With an `Idempotency-Key`, the
    selected ids are stored, because the filter may match other events at a repeat.

    With `load`, `act` returns only ids, and `load` returns the full rows, which are stored then. If the call was
    interrupted before that, a repeat returns the rows as they are at the repeat.
    """
    if idempotency_key(call.request) is None:
        event_ids = chosen(call)
    else:
        stored = once(call.request, lambda: {"events": chosen(call)}, now=call.now, status=200)
        if stored.status >= 400:
            return answered(stored)
        event_ids = stored.body["events"] if stored.body else []

    def answer(event_id: str, ahead: LockedFacts | None) -> Answer:
        return once(call.request, partial(act, event_id, ahead), now=call.now, part=event_id)

    def held(event_id: str, error: OperationalError) -> Answer:
        # A repeat of the call tries it again.
        body = waits(error)
        return Answer(status=body["status"], body=body)

    answers = approve.each(event_ids, answer, held, clock=timezone.now, ahead=load is not None)
    results: list[dict[str, Any]] = [
        {
            "event_id": event_id,
            "status": one.status,
            what: one.body if one.status < 400 else None,
            "problem": None if one.status < 400 else one.body,
        }
        for event_id, one in zip(event_ids, answers, strict=True)
    ]
    if load is not None:
        named = [one for one in results if one[what] is not None and one[what].keys() == {"id"}]
        for one, body in zip(named, load(call, [one[what] for one in named]), strict=True):
            one[what] = body
        completed(call.request, {one["event_id"]: one[what] for one in named})
    count = sum(one["problem"] is None for one in results)
    return Response({"done": count, "refused": len(results) - count, "results": results})


def chosen(call: Call) -> list[str]:
    """Return the selected EventIds. Raises Problem `validation`, or Refused `count-changed` if a filter matches another
    number of events than the caller expects.
    """
    wanted = call.wanted
    if "events" in wanted:
        found = list(dict.fromkeys(event_id.strip().upper() for event_id in wanted["events"]))
    else:
        query = QueryDict(mutable=True)
        for name, value in wanted["filter"].items():
            if name not in EventFilter.base_filters:
                raise wrong("filter", f"There is no filter `{name}`.")
            values = value if isinstance(value, list) else [str(value).lower() if isinstance(value, bool) else value]
            query.setlist(name, [str(one) for one in values])
        filters = filtered(call.request, EventFilter(query, now=call.now))
        found = rows.ids_by_time(filters, limit=requests.MAX_ITEMS + 1)
        if len(found) > requests.MAX_ITEMS:
            raise wrong("filter", f"It finds more than {requests.MAX_ITEMS} events: narrow it.")
    expected = wanted["expected_count"]
    if expected is not None and expected != len(found):
        raise Refused("count-changed", f"These are {len(found)} events, and you expected {expected}.", count=len(found))
    return found
