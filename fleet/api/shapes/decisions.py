"""Approvals and how far they got; claims and holds."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.api.shapes.base import SecondsUntil
from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import comment_field
from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import TAKE_REASONS
from fleet.domain.states import OPEN_ORDERS
from fleet.domain.times import in_bounds
from fleet.operations.inputs import RequestSerializer
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


# What callers send when they decide.

MAX_ITEMS, MAX_GUARDS = 100, 20
MAX_INTEGER = 2**31 - 1


@extend_schema_field(
    {
        "anyOf": [{"type": "string", "enum": ["now", "prepared"]}, {"type": "string", "format": "date-time"}],
        "default": "now",
    }
)
class MomentField(serializers.Field[Any, Any, Any, Any]):
    """`now`, `prepared`, or a time; becomes (When, due_at)."""

    def to_internal_value(self, data: Any) -> tuple[When, datetime | None]:
        if data in (When.NOW.value, When.PREPARED.value):
            return When(data), None
        said = "Say `now`, `prepared`, or a time as RFC 3339 with its zone, such as `2030-01-31T22:00:00Z`."
        try:
            at = datetime.fromisoformat(data) if isinstance(data, str) and "T" in data.upper() else None
        except ValueError:
            at = None
        due = in_bounds(at) if at is not None and at.tzinfo is not None else None
        if due is None:
            raise serializers.ValidationError(said)
        return When.TIME, due

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "oneOf": [
                {"type": "string", "enum": list(TAKE_REASONS)},
                {
                    "type": "object",
                    "properties": {
                        "code": {"type": "string", "enum": list(TAKE_REASONS)},
                        "reason": {"type": "string", "maxLength": 2000},
                    },
                    "required": ["code", "reason"],
                    "additionalProperties": False,
                },
            ]
        },
        "maxItems": MAX_GUARDS,
    }
)
class OverrideField(serializers.Field[Any, Any, Any, Any]):
    """Guard codes with reasons; becomes a dict of them. A bare code has None: the comment is its reason."""

    def to_internal_value(self, data: Any) -> dict[str, str | None]:
        if not isinstance(data, list) or len(data) > MAX_GUARDS:
            raise serializers.ValidationError("Say a list of guards, each with its code and a reason.")
        found: dict[str, str | None] = {}
        for one in data:
            code, reason = (one.get("code"), one.get("reason")) if isinstance(one, Mapping) else (one, None)
            if not isinstance(code, str) or code not in TAKE_REASONS:
                raise serializers.ValidationError(
                    f"No guard of this code takes a reason; those that do are {', '.join(TAKE_REASONS)}."
                )
            if isinstance(one, Mapping) and (set(one) != {"code", "reason"} or not isinstance(reason, str)):
                raise serializers.ValidationError("A guard has a `code` and a `reason`, both texts, and nothing else.")
            found[code] = comment_field().run_validation(reason) if reason is not None else None
        return found

    def to_representation(self, value: Any) -> Any:
        return value


def override_field() -> OverrideField:
    return OverrideField(
        required=False,
        default=dict,
        help_text="Guards that take a reason, with it. A bare code takes the comment as its reason.",
    )


def shown_field() -> serializers.DictField:
    return serializers.DictField(
        child=serializers.CharField(max_length=4000),
        required=False,
        default=dict,
        help_text="The `shown` of the guards that you looked at, by code; several with blanks between them. A reason in"
        " `override` covers no other guard of that code.",
    )


class PlanSerializer(RequestSerializer):
    comment = comment_field(help_text="Why; it stands in the timeline.")
    when = MomentField(
        required=False,
        help_text="`now`, once every machine is `prepared`, or at a time before NotBefore.",
    )
    override = override_field()
    shown = shown_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        overrides = with_reasons(values["override"], values["comment"])
        return {"when": (When.NOW, None), **values, "override": overrides}


def with_reasons(override: dict[str, str | None], comment: str) -> dict[str, str]:
    """Reasons by guard code; where none was said the comment is it. Raises ValidationError."""
    if comment.strip() == "" and None in override.values():
        raise serializers.ValidationError({"override": ["Say a reason for each guard, or a comment."]})
    return {code: comment if reason is None else reason for code, reason in override.items()}


def version_field(said: str) -> serializers.IntegerField:
    """The event's version that a caller has looked at."""
    return serializers.IntegerField(
        required=False, allow_null=True, default=None, help_text=said, min_value=0, max_value=MAX_INTEGER
    )


def versions_field() -> serializers.DictField:
    """The same of several events."""
    return serializers.DictField(
        child=serializers.IntegerField(min_value=0, max_value=MAX_INTEGER),
        required=False,
        default=dict,
        help_text="The `version` of each event that you looked at, by EventId.",
    )


class ApproveSerializer(PlanSerializer):
    expected_version = version_field("The event's `version` that you looked at; another one refuses the approval.")


class ConsentSerializer(RequestSerializer):
    expected_version = version_field("The event's `version` that you looked at; another one refuses the call.")
    comment = comment_field(required=False, default="", help_text="Why; it stands in the timeline.")
    override = override_field()
    shown = shown_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return values | {"override": with_reasons(values["override"], values["comment"])}


class ClaimRequestSerializer(RequestSerializer):
    comment = comment_field(required=False, default="", help_text="What you are about to do.")
    take_over = serializers.BooleanField(required=False, default=False, help_text="Even if somebody else is on it.")


class HoldRequestSerializer(RequestSerializer):
    reason = serializers.CharField(max_length=2000, help_text="Why it shall run by itself; others will ask.")


class ChosenSerializer(RequestSerializer):
    """Which events a bulk call is about."""

    events = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        min_length=1,
        max_length=MAX_ITEMS,
        help_text=f"EventIds, at most {MAX_ITEMS}; each once.",
    )
    filter = serializers.DictField(
        required=False, help_text="Instead of `events`: the filter of `GET events/`, name by name."
    )
    expected_count = serializers.IntegerField(
        required=False,
        allow_null=True,
        default=None,
        help_text="How many events you saw; another number refuses the call as a whole.",
        min_value=0,
        max_value=MAX_INTEGER,
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        values = super().validate(values)
        if ("events" in values) == ("filter" in values):
            raise serializers.ValidationError("Say either `events` or `filter`.")
        return values


class BulkApproveSerializer(ChosenSerializer, PlanSerializer):
    expected_versions = versions_field()


class BulkClaimSerializer(ChosenSerializer, ClaimRequestSerializer):
    expected_versions = versions_field()
