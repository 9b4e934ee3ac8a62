"""Shapes of requests."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import TAKE_REASONS
from fleet.domain.drills import (
    DEFAULT_DURATION_SECONDS,
    DEFAULT_NOTICE_SECONDS,
    DEFAULT_TYPE,
    DURATION_SECONDS,
    KINDS,
    NOTICE_SECONDS,
)
from fleet.domain.times import in_bounds
from fleet.domain.waves import MAX_EVENTS
from fleet.operations.inputs import RequestSerializer, Time
from fleet.operations.policy.rules import RuleFieldsSerializer


def comment_field(**kwargs: Any) -> serializers.CharField:
    return serializers.CharField(max_length=2000, allow_blank=True, **kwargs)


class WhySerializer(RequestSerializer):
    comment = comment_field(required=False, default="", help_text="The reason; it is recorded in the timeline.")


class MergeSetSerializer(RequestSerializer):
    into = serializers.IntegerField(
        min_value=1, max_value=2**63 - 1, help_text="The id of the set that remains; this one goes into it."
    )


class AdmissionsRequestSerializer(WhySerializer):
    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1),
        min_length=1,
        max_length=1000,
        help_text="Ids of those who wait.",
    )


class AdmissionRuleSerializer(WhySerializer):
    until = Time(allow_null=True, help_text="At most 7 days from now; null ends it at once.")


class MoveRequestSerializer(WhySerializer):
    set = serializers.IntegerField(
        allow_null=True, min_value=1, help_text="The id of a set that has a name; null lifts the machine's confinement."
    )


# Requests of decisions.

MAX_ITEMS, MAX_GUARDS = 100, 20
MAX_INTEGER = 2**31 - 1


@extend_schema_field(
    {
        "anyOf": [{"type": "string", "enum": ["now", "prepared"]}, {"type": "string", "format": "date-time"}],
        "default": "now",
    }
)
class MomentField(serializers.Field[Any, Any, Any, Any]):
    """Field for `now`, `prepared`, or a time; becomes (When, due_at)."""

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
    comment = comment_field(help_text="The reason; it is recorded in the timeline.")
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
    """Return reasons by guard code; the comment replaces a missing reason. Raises ValidationError."""
    if comment.strip() == "" and None in override.values():
        raise serializers.ValidationError({"override": ["Say a reason for each guard, or a comment."]})
    return {code: comment if reason is None else reason for code, reason in override.items()}


def version_field(said: str) -> serializers.IntegerField:
    """Return the field for the version of the event that the caller has seen."""
    return serializers.IntegerField(
        required=False, allow_null=True, default=None, help_text=said, min_value=0, max_value=MAX_INTEGER
    )


def versions_field() -> serializers.DictField:
    """Return the field for the versions of several events."""
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
    comment = comment_field(required=False, default="", help_text="The reason; it is recorded in the timeline.")
    override = override_field()
    shown = shown_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return values | {"override": with_reasons(values["override"], values["comment"])}


class ClaimRequestSerializer(RequestSerializer):
    comment = comment_field(required=False, default="", help_text="What you are about to do.")
    take_over = serializers.BooleanField(
        required=False, default=False, help_text="Claim the event even if another user has claimed it."
    )


class HoldRequestSerializer(RequestSerializer):
    reason = serializers.CharField(max_length=2000, help_text="Why it shall run by itself; others will ask.")


class ChosenSerializer(RequestSerializer):
    """Events of a bulk request: EventIds, or a filter."""

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


# Drills and waves.


class BeginDrillSerializer(RequestSerializer):
    set = serializers.IntegerField(min_value=1, max_value=2**63 - 1, help_text="The id of the set that rehearses.")
    type = serializers.ChoiceField(KINDS, required=False, default=DEFAULT_TYPE)
    machines = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        default=list,
        max_length=1000,
        help_text="Resource names that the event names, whose hooks run; without them the first live machine.",
    )
    notice_seconds = serializers.IntegerField(
        required=False,
        default=DEFAULT_NOTICE_SECONDS,
        min_value=NOTICE_SECONDS[0],
        max_value=NOTICE_SECONDS[1],
        help_text="Until NotBefore.",
    )
    duration_seconds = serializers.IntegerField(
        required=False,
        default=DEFAULT_DURATION_SECONDS,
        min_value=DURATION_SECONDS[0],
        max_value=DURATION_SECONDS[1],
        help_text="From Started to gone.",
    )
    comment = comment_field(help_text="The reason; it is recorded in the timeline.")


class BeginWaveSerializer(RequestSerializer):
    events = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        default=list,
        max_length=MAX_EVENTS,
        help_text="EventIds, in the order of their turns.",
    )
    service = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=200,
        help_text="Instead of `events`: every open event of this service that waits for a decision, the soonest first.",
    )
    comment = comment_field(help_text="The reason; it is recorded in the timeline.")
    override = override_field()
    shown = shown_field()
    expected_versions = versions_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if bool(values["events"]) == bool(values["service"]):
            raise serializers.ValidationError("Say `events`, or a `service`.")
        return values | {"override": with_reasons(values["override"], values["comment"])}


class DryRunRequestSerializer(RequestSerializer):
    id = serializers.IntegerField(
        required=False, min_value=1, max_value=2**62, help_text="A saved rule; with `rule` it is tried as changed."
    )
    rule = RuleFieldsSerializer(required=False, help_text="A rule that is not saved, or what changes in a saved one.")
    since = Time(required=False, allow_null=True, default=None, help_text="Events first seen at or after this time.")
    until = Time(required=False, allow_null=True, default=None, help_text="Events first seen before this time.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "id" not in values and "rule" not in values:
            raise serializers.ValidationError("Say which rule: the `id` of a saved one, or a `rule`.")
        return values
