"""Approvals and how far they got; claims and holds."""

from rest_framework import serializers

from fleet.api.shapes.base import SecondsUntil
from fleet.api.shapes.derive import shape
from fleet.domain.states import OPEN_ORDERS
from fleet.projections.approvals import ApprovalRow, NextAsked, OrderRow, Overridden
from fleet.projections.events.rows import ClaimRow, ClaimTold, HoldRow, HoldTold

OrderShape = shape(
    OrderRow,
    {
        "delivered_by": "Which path brought it: `celery`, `beat`, `ticker`, `look` or `report`.",
        "outcome": "`answered`, `refused`, `failed`, or empty.",
        "request_id": "That of its approval.",
        "trace_id": "That of its approval.",
        "azure_status": "The HTTP status of Azure's answer.",
    },
    seconds_left=SecondsUntil("expires_at", states=OPEN_ORDERS, help_text="Until it expires; null once it is closed."),
)
NextAskedShape = shape(NextAsked, {"silent": "The machine that is waited for until then."}, properties=("sentence",))
OverriddenShape = shape(Overridden, {"sentence": "What the guard said."})
ApprovalShape = shape(
    ApprovalRow,
    {
        "by": "Who decided.",
        "via": "Through what: `page`, `api` or `rule`.",
        "token_name": "The token's name; empty where there was none.",
        "rule": "The rule that decided; null where a person did.",
        "rule_wording": "How the rule was worded then; empty where a person decided.",
        "event_version": "The event's version when it was decided.",
        "when": "When it was to go.",
        "due_at": "The time that was said, with `when` being `time`.",
        "overrides": "The guards that were overridden, and why.",
        "decided_at": "When somebody decided or proposed it.",
        "consented_by": "The second person; empty where there was none.",
        "waits_for": "What it waits for now, in one sentence; empty once it is on its way or over.",
        "granted_at": "When it was to go to Azure; null while it waits.",
        "accepted_at": "When Azure answered 200.",
        "accepted_by": "The machine that asked Azure.",
        "inferred": "Its end was concluded, not answered.",
        "reason": "One sentence about how it ended.",
        "returned": "It ended since the decision no longer held; `reason` says why. The event needs a new decision.",
        "orders": "Oldest first.",
        "request_id": "Of the request that decided, or of a rule's decision: found in every log. Empty before 0.2.0.",
        "trace_id": "The trace of that request (W3C Trace Context); empty where nobody traced it.",
        "wave": "The id of the wave that it belongs to.",
        "turn": "Its place in the wave, from 1.",
        "next_asked": "Who is asked next and when, if nothing happens until then; in lists it is null.",
        "steps": "Decided, agreed to, due, sent, answered, started, gone.",
    },
    without=("decision",),
    properties=("may_be_withdrawn",),
)
ClaimRefShape = shape(ClaimRow, name="ClaimRef")
HoldRefShape = shape(
    HoldRow,
    {"by": "A person, or the rule.", "by_rule": "A rule left it to Azure: people may still decide."},
    name="HoldRef",
)
ClaimShape = shape(ClaimTold, name="Claim")
HoldShape = shape(HoldTold, {"by": "A person, or the rule."}, name="Hold")


class BulkItem(serializers.Serializer[object]):
    event_id = serializers.CharField()
    status = serializers.IntegerField(help_text="201, or the status of `problem`.")
    problem = serializers.DictField(allow_null=True, help_text="The problem document of a refusal.")


class BulkApprovalItem(BulkItem):
    approval = ApprovalShape(allow_null=True)


class BulkClaimItem(BulkItem):
    claim = ClaimShape(allow_null=True)


class BulkApprovals(serializers.Serializer[object]):
    done = serializers.IntegerField(help_text="How many were approved or proposed.")
    refused = serializers.IntegerField()
    results = BulkApprovalItem(many=True, help_text="One of each event, in the order asked for.")


class BulkClaims(serializers.Serializer[object]):
    done = serializers.IntegerField(help_text="How many were claimed.")
    refused = serializers.IntegerField()
    results = BulkClaimItem(many=True, help_text="One of each event, in the order asked for.")
