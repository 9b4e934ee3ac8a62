"""Rules, their dry runs, and no-approval windows."""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import ClockTime, SecondsUntil, Time
from fleet.api.shapes.derive import shape
from fleet.api.shapes.strict import RequestSerializer, ToldList, ToldNumber, ToldText
from fleet.domain.approvals.guards import ACCEPTABLE
from fleet.domain.policy.rules import MAX_NAME, MAX_NUMBER, MAX_PATTERN, MAX_REASON, SOURCES, TYPE_NAME, Action
from fleet.projections.policy.dry_run import DryRun, PastEvent
from fleet.projections.policy.rules import RuleRow, WindowRow

EVENT_TYPES = (
    "Empty: every type that Drydock knows. Another type is approved by a rule only if it names it exactly, as Azure"
    " spells it."
)
WEEKDAYS = "Numbers from 0 (Monday) to 6; empty: every day."
FROM_TIME = "Local time, included, such as `22:00`; null: from midnight."
UNTIL_TIME = "Local time, not included; may pass midnight; null: until midnight."
TIME_ZONE = "An IANA name such as `Europe/Berlin`."
SET_PATTERN = "A name with `*` and `?`, without case; empty: every set."
SERVICE = "A service, with `*` and `?`; empty: every one."
RESOURCE_GROUP = "A resource group, with `*` and `?`; empty: every one."


# What is no sensible choice or limit is refused with a sentence by the operation; the schema says what is one.
def seconds(help_text: str) -> serializers.IntegerField:
    told = {"minimum": 0, "maximum": MAX_NUMBER}
    return ToldNumber(
        told=told, required=False, allow_null=True, min_value=-MAX_NUMBER, max_value=2**62, help_text=help_text
    )


def text(help_text: str, *, most: int, required: bool = False) -> serializers.CharField:
    told = {"maxLength": most}
    return ToldText(told=told, required=required, allow_blank=True, max_length=10_000, help_text=help_text)


def words(help_text: str, known: Iterable[str]) -> serializers.ListField:
    told = {"items": {"enum": list(known)}}
    child = serializers.CharField(max_length=100)
    return ToldList(told=told, child=child, required=False, max_length=50, help_text=help_text)


def days() -> serializers.ListField:
    told = {"items": {"minimum": 0, "maximum": 6}}
    child = serializers.IntegerField(min_value=-9, max_value=9)
    return ToldList(told=told, child=child, required=False, max_length=50, help_text=WEEKDAYS)


class RuleFieldsSerializer(RequestSerializer):
    """What a rule says; what is left out stays as it is, or matches everything."""

    name = text("What people call it; no two rules share one.", most=MAX_NAME)
    reason = text("Why it exists; it stands with each of its decisions.", most=MAX_REASON)
    action = ToldText(
        told={"enum": [action.value for action in Action]}, required=False, max_length=100, help_text="What it does."
    )
    event_types = ToldList(
        told={"items": {"pattern": f"^{TYPE_NAME.pattern}$"}},
        child=serializers.CharField(max_length=100),
        required=False,
        max_length=50,
        help_text=EVENT_TYPES,
    )
    sources = words("Empty: every source.", SOURCES)
    min_duration_seconds = seconds("The shortest announced duration that matches.")
    max_duration_seconds = seconds("The longest; an unknown one (-1) is never short.")
    unknown_duration = serializers.BooleanField(
        required=False, help_text="Where a limit is set: an unknown duration matches, too."
    )
    set_pattern = text(SET_PATTERN, most=MAX_PATTERN)
    service = text(SERVICE, most=MAX_PATTERN)
    resource_group = text(RESOURCE_GROUP, most=MAX_PATTERN)
    weekdays = days()
    from_time = ClockTime(required=False, allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(required=False, allow_null=True, help_text=UNTIL_TIME)
    time_zone = text(TIME_ZONE, most=MAX_NAME)
    min_notice_seconds = seconds("The least time left until NotBefore.")
    max_notice_seconds = seconds("The most time left; an event without NotBefore does not match then.")
    accepts = words("Guards whose reason this rule gives.", ACCEPTABLE)
    expires_at = Time(required=False, allow_null=True, help_text="From then on it decides nothing; null: never.")


class RuleRequestSerializer(RuleFieldsSerializer):
    enabled = serializers.BooleanField(required=False, help_text="A new rule is off unless this says so.")
    position = serializers.IntegerField(
        required=False, min_value=1, max_value=10_000, help_text="Its place in the order; 1 is asked first."
    )


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


class WindowRequestSerializer(RequestSerializer):
    name = text("What people call it.", most=MAX_NAME, required=True)
    reason = text("Why; whoever wants to approve in these hours reads it.", most=MAX_REASON, required=True)
    starts_at = Time(required=False, allow_null=True, help_text="Once: when it begins.")
    ends_at = Time(required=False, allow_null=True, help_text="Once: when it ends.")
    weekdays = days()
    from_time = ClockTime(required=False, allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(required=False, allow_null=True, help_text=UNTIL_TIME)
    time_zone = text(TIME_ZONE, most=MAX_NAME)
    set_pattern = text(SET_PATTERN, most=MAX_PATTERN)
    service = text(SERVICE, most=MAX_PATTERN)
    resource_group = text(RESOURCE_GROUP, most=MAX_PATTERN)


HOURS_AND_PLACE = {
    "weekdays": WEEKDAYS,
    "from_time": FROM_TIME,
    "until_time": UNTIL_TIME,
    "time_zone": TIME_ZONE,
    "set_pattern": SET_PATTERN,
    "service": SERVICE,
    "resource_group": RESOURCE_GROUP,
}
RuleShape = shape(
    RuleRow,
    {
        "position": "Its place in the order; 1 is asked first.",
        "wording": "The whole rule in one sentence, as it is kept with its decisions.",
        "reason": "Why it exists.",
        "enabled": "Switched on.",
        "in_force": "Switched on and not expired.",
        "event_types": EVENT_TYPES,
        "sources": "Empty: every source.",
        "unknown_duration": "An unknown duration matches, too.",
        **HOURS_AND_PLACE,
        "accepts": "Guards whose reason this rule gives.",
        "author": "Who made it; empty for a ready-made one that nobody has taken on.",
        "approvals": "How many approvals it has decided.",
        "holds": "How many events it has left to Azure.",
    },
    seconds_left=SecondsUntil("expires_at", states=(), help_text="Until it expires; null when it never does."),
)
PastEventShape = shape(
    PastEvent,
    {
        "would": "What the rule would have done.",
        "sentence": "The same in words, with the guard or the rule that came first.",
        "approved_by": "Who approved it in truth; empty when nobody did.",
        "held_by": "Who left it to Azure; empty when nobody did.",
    },
)
DryRunShape = shape(
    DryRun,
    {
        "wording": "The rule in one sentence.",
        "sentence": "The result: `Would have approved 14 of 31; …`.",
        "considered": "How many stored events were looked at; at most 500.",
        "matched": "How many of them the rule matches.",
        "approve": "It would have approved so many at once.",
        "later": "So many once other events were over.",
        "guarded": "A guard that it does not accept stood against so many.",
        "earlier": "A rule before it matches so many.",
        "agreed": "Of those that it would have approved, so many were approved.",
        "more": "There are older events that were not looked at.",
        "events": "Those that it matches, the newest first.",
        "unknown": "What cannot be known of the past.",
    },
)
NoApprovalWindowShape = shape(
    WindowRow,
    {
        "wording": "When and where it holds, in words.",
        "open": "It holds now.",
        "over": "Its end is past.",
        **HOURS_AND_PLACE,
    },
    name="NoApprovalWindow",
)
