"""Shapes of request bodies."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.domain import drills
from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import TAKE_REASONS
from fleet.domain.times import in_bounds
from fleet.domain.waves import MAX_EVENTS
from fleet.operations.inputs import RequestSerializer, Time
from fleet.operations.machines.decommission import MOST_AT_ONCE
from fleet.operations.policy.rules import RuleFieldsSerializer

MAX_ITEMS, MAX_GUARDS = 100, 20
MAX_INTEGER, MAX_ID = 2**31 - 1, 2**63 - 1
REASON = "The reason; it is recorded in the timeline."


def text(help_text: str, most: int = 200, **kwargs: Any) -> serializers.CharField:
    """Return a field for a text of up to `most` characters."""
    return serializers.CharField(max_length=most, help_text=help_text, **kwargs)


def comment_field(help_text: str = REASON, **kwargs: Any) -> serializers.CharField:
    return text(help_text, 2000, allow_blank=True, **kwargs)


def optional_comment(help_text: str = REASON) -> serializers.CharField:
    return comment_field(help_text, required=False, default="")


def flag(help_text: str, **kwargs: Any) -> serializers.BooleanField:
    return serializers.BooleanField(required=False, help_text=help_text, **kwargs)


def number(help_text: str, least: int = 1, most: int | None = MAX_ID, **kwargs: Any) -> serializers.IntegerField:
    """Return a field for a whole number; with the default limits, for a row id."""
    return serializers.IntegerField(min_value=least, max_value=most, help_text=help_text, **kwargs)


def names(help_text: str, most: int, **kwargs: Any) -> serializers.ListField:
    """Return an optional field for a list of up to `most` names."""
    child = serializers.CharField(max_length=200)
    return serializers.ListField(child=child, required=False, max_length=most, help_text=help_text, **kwargs)


def row_ids(help_text: str, most: int) -> serializers.ListField:
    """Return a field for a list of up to `most` row ids."""
    child = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    return serializers.ListField(child=child, min_length=1, max_length=most, help_text=help_text)


def seconds(help_text: str, bounds: tuple[int, int], default: int) -> serializers.IntegerField:
    return number(help_text, *bounds, required=False, default=default)


class WhySerializer(RequestSerializer):
    comment = optional_comment()


class MergeSetSerializer(RequestSerializer):
    into = number("The id of the set that remains; this one goes into it.")


class AdmissionsRequestSerializer(WhySerializer):
    ids = row_ids("Ids of those who wait.", 1000)


class DecommissionRequestSerializer(WhySerializer):
    machines = row_ids("Ids of machines.", MOST_AT_ONCE)


class AdmissionRuleSerializer(WhySerializer):
    until = Time(allow_null=True, help_text="At most 7 days from now; null ends it at once.")


class MoveRequestSerializer(WhySerializer):
    set = number("The id of a set that has a name; null lifts the machine's confinement.", most=None, allow_null=True)


# Requests of decisions.


@extend_schema_field(
    {
        "anyOf": [{"type": "string", "enum": ["now", "prepared"]}, {"type": "string", "format": "date-time"}],
        "default": "now",
    }
)
class MomentField(serializers.Field[Any, Any, Any, Any]):
    """Field for `now`, `prepared` or a time. Its value is (When, due_at)."""

    def to_internal_value(self, data: Any) -> tuple[When, datetime | None]:
        if data in (When.NOW.value, When.PREPARED.value):
            return When(data), None
        try:
            at = datetime.fromisoformat(data) if isinstance(data, str) and "T" in data.upper() else None
        except ValueError:
            at = None
        due = in_bounds(at) if at is not None and at.tzinfo is not None else None
        if due is None:
            raise serializers.ValidationError(
                "Say `now`, `prepared`, or a time as RFC 3339 with its zone, such as `2030-01-31T22:00:00Z`."
            )
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
    """Field for guard codes with reasons. Its value is a dict of code to reason; None for a code without its own
    reason, for which the comment is used.
    """

    def to_internal_value(self, data: Any) -> dict[str, str | None]:
        if not isinstance(data, list) or len(data) > MAX_GUARDS:
            raise serializers.ValidationError("Say a list of guards, each with its code and a reason.")
        reasons: dict[str, str | None] = {}
        for guard in data:
            code, reason = (guard.get("code"), guard.get("reason")) if isinstance(guard, Mapping) else (guard, None)
            if not isinstance(code, str) or code not in TAKE_REASONS:
                raise serializers.ValidationError(
                    f"No guard of this code takes a reason; those that do are {', '.join(TAKE_REASONS)}."
                )
            if isinstance(guard, Mapping) and (set(guard) != {"code", "reason"} or not isinstance(reason, str)):
                raise serializers.ValidationError("A guard has a `code` and a `reason`, both texts, and nothing else.")
            reasons[code] = comment_field().run_validation(reason) if reason is not None else None
        return reasons

    def to_representation(self, value: Any) -> Any:
        return value


def version_field(help_text: str) -> serializers.IntegerField:
    """Return the field for `expected_version`: the version of the event that the caller has seen."""
    return number(help_text, 0, MAX_INTEGER, required=False, allow_null=True, default=None)


def versions_field() -> serializers.DictField:
    """Return the field for the versions of several events, by EventId, that the caller has seen."""
    return serializers.DictField(
        child=serializers.IntegerField(min_value=0, max_value=MAX_INTEGER),
        required=False,
        default=dict,
        help_text="The `version` of each event that you looked at, by EventId.",
    )


class ReasonsSerializer(RequestSerializer):
    """Comment, and reasons for guards. The comment is the reason for a guard that has none of its own."""

    comment = comment_field()
    override = OverrideField(
        required=False,
        default=dict,
        help_text="Guards that take a reason, with it. A bare code takes the comment as its reason.",
    )
    shown = serializers.DictField(
        child=serializers.CharField(max_length=4000),
        required=False,
        default=dict,
        help_text="The `shown` of the guards that you looked at, by code; several with blanks between them. A reason in"
        " `override` covers no other guard of that code.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        override, comment = values["override"], values["comment"]
        if comment.strip() == "" and None in override.values():
            raise serializers.ValidationError({"override": ["Say a reason for each guard, or a comment."]})
        return values | {"override": {code: comment if reason is None else reason for code, reason in override.items()}}


class PlanSerializer(ReasonsSerializer):
    when = MomentField(
        required=False,
        help_text="`now`, once every machine is `prepared`, or at a time before NotBefore.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return {"when": (When.NOW, None), **super().validate(values)}


class ApproveSerializer(PlanSerializer):
    expected_version = version_field("The event's `version` that you looked at; another one refuses the approval.")


class ConsentSerializer(ReasonsSerializer):
    expected_version = version_field("The event's `version` that you looked at; another one refuses the call.")
    comment = optional_comment()


class ClaimRequestSerializer(RequestSerializer):
    comment = optional_comment("What you are about to do.")
    take_over = flag("Claim the event even if another user has claimed it.", default=False)
    assign_to = text(
        "The user who handles the event; the caller if empty.", required=False, allow_blank=True, default=""
    )


class SilenceRequestSerializer(WhySerializer):
    until = Time(allow_null=True, help_text="At most 24 hours from now; null ends the silence.")
    whole_set = flag("Silence all events of the set.", default=False)


class HoldRequestSerializer(RequestSerializer):
    reason = text("Why it shall run by itself; others will ask.", 2000)


class ChosenSerializer(RequestSerializer):
    """Request body that selects several events, by EventIds or by a filter."""

    events = names(f"EventIds, at most {MAX_ITEMS}; each once.", MAX_ITEMS, min_length=1)
    filter = serializers.DictField(
        required=False, help_text="Instead of `events`: the filter of `GET events/`, name by name."
    )
    expected_count = version_field("How many events you saw; another number refuses the call as a whole.")

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
    set = number("The id of the set that rehearses.")
    type = serializers.ChoiceField(drills.KINDS, required=False, default=drills.DEFAULT_TYPE)
    machines = names(
        "Resource names that the event names, whose hooks run; without them the first live machine.", 1000, default=list
    )
    notice_seconds = seconds("Until NotBefore.", drills.NOTICE_SECONDS, drills.DEFAULT_NOTICE_SECONDS)
    duration_seconds = seconds("From Started to gone.", drills.DURATION_SECONDS, drills.DEFAULT_DURATION_SECONDS)
    comment = comment_field()


class BeginWaveSerializer(ReasonsSerializer):
    events = names("EventIds, in the order of their turns.", MAX_EVENTS, default=list)
    service = text(
        "Instead of `events`: every open event of this service that waits for a decision, the soonest first.",
        required=False,
        allow_blank=True,
        default="",
    )
    expected_versions = versions_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if bool(values["events"]) == bool(values["service"]):
            raise serializers.ValidationError("Say `events`, or a `service`.")
        return super().validate(values)


class DryRunRequestSerializer(RequestSerializer):
    id = number("A saved rule; with `rule` it is tried as changed.", most=2**62, required=False)
    rule = RuleFieldsSerializer(required=False, help_text="A rule that is not saved, or what changes in a saved one.")
    since = Time(required=False, allow_null=True, default=None, help_text="Events first seen at or after this time.")
    until = Time(required=False, allow_null=True, default=None, help_text="Events first seen before this time.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "id" not in values and "rule" not in values:
            raise serializers.ValidationError("Say which rule: the `id` of a saved one, or a `rule`.")
        return values
