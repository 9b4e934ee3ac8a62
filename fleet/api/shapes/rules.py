"""Rules, their dry runs, and no-approval windows."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import SecondsUntil, ServerTime, SetRefSerializer, Time, texts, word
from fleet.api.shapes.requests import RequestSerializer
from fleet.domain.events import TYPES
from fleet.domain.guards import ACCEPTABLE
from fleet.domain.rule_faults import MAX_NUMBER, SOURCES
from fleet.domain.rules import Action
from fleet.domain.states import ApprovalState, EndedAs, EventStatus
from fleet.projections.dry_run import Would

WEEKDAYS = "Numbers from 0 (Monday) to 6; empty: every day."
FROM_TIME = "Local time, included, such as `22:00`; null: from midnight."
UNTIL_TIME = "Local time, not included; may pass midnight; null: until midnight."
TIME_ZONE = "An IANA name such as `Europe/Berlin`."
SET_PATTERN = "A name with `*` and `?`, without case; empty: every set."
SERVICE = "A service, with `*` and `?`; empty: every one."
RESOURCE_GROUP = "A resource group, with `*` and `?`; empty: every one."


class ClockTime(serializers.TimeField):
    """Hours and minutes: `08:00`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(format="%H:%M", input_formats=["%H:%M", "%H:%M:%S"], **kwargs)


def _seconds(help_text: str) -> serializers.IntegerField:
    # What is no sensible limit is refused with a sentence by the operation.
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=-MAX_NUMBER, max_value=2**62, help_text=help_text
    )


def _text(help_text: str, *, required: bool = False) -> serializers.CharField:
    return serializers.CharField(required=required, allow_blank=True, max_length=10_000, help_text=help_text)


def _words(help_text: str) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.CharField(max_length=100), required=False, max_length=50, help_text=help_text
    )


def _days() -> serializers.ListField:
    return serializers.ListField(
        child=serializers.IntegerField(min_value=-9, max_value=9), required=False, max_length=50, help_text=WEEKDAYS
    )


class RuleFieldsSerializer(RequestSerializer):
    """What a rule says; what is left out stays as it is, or matches everything."""

    name = _text("What people call it; no two rules share one.")
    reason = _text("Why it exists; it stands with each of its decisions.")
    action = serializers.CharField(required=False, max_length=100, help_text=f"One of {', '.join(Action)}.")
    event_types = _words(f"Out of {', '.join(TYPES)}; empty: every type.")
    sources = _words(f"Out of {', '.join(SOURCES)}; empty: every source.")
    min_duration_seconds = _seconds("The shortest announced duration that matches.")
    max_duration_seconds = _seconds("The longest; an unknown one (-1) is never short.")
    unknown_duration = serializers.BooleanField(
        required=False, help_text="Where a limit is set: an unknown duration matches, too."
    )
    set_pattern = _text(SET_PATTERN)
    service = _text(SERVICE)
    resource_group = _text(RESOURCE_GROUP)
    weekdays = _days()
    from_time = ClockTime(required=False, allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(required=False, allow_null=True, help_text=UNTIL_TIME)
    time_zone = _text(TIME_ZONE)
    min_notice_seconds = _seconds("The least time left until NotBefore.")
    max_notice_seconds = _seconds("The most time left; an event without NotBefore does not match then.")
    accepts = _words(f"Guards whose reason this rule gives, out of {', '.join(ACCEPTABLE)}.")
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
    name = _text("What people call it.", required=True)
    reason = _text("Why; whoever wants to approve in these hours reads it.", required=True)
    starts_at = Time(required=False, allow_null=True, help_text="Once: when it begins.")
    ends_at = Time(required=False, allow_null=True, help_text="Once: when it ends.")
    weekdays = _days()
    from_time = ClockTime(required=False, allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(required=False, allow_null=True, help_text=UNTIL_TIME)
    time_zone = _text(TIME_ZONE)
    set_pattern = _text(SET_PATTERN)
    service = _text(SERVICE)
    resource_group = _text(RESOURCE_GROUP)


class RuleSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    position = serializers.IntegerField(help_text="Its place in the order; 1 is asked first.")
    name = serializers.CharField()
    wording = serializers.CharField(help_text="The whole rule in one sentence, as it is kept with its decisions.")
    reason = serializers.CharField(help_text="Why it exists.")
    enabled = serializers.BooleanField(help_text="Switched on.")
    in_force = serializers.BooleanField(help_text="Switched on and not expired.")
    expired = serializers.BooleanField()
    action = word(Action)
    event_types = texts("Empty: every type.")
    sources = texts("Empty: every source.")
    min_duration_seconds = serializers.IntegerField(allow_null=True)
    max_duration_seconds = serializers.IntegerField(allow_null=True)
    unknown_duration = serializers.BooleanField(help_text="An unknown duration matches, too.")
    set_pattern = serializers.CharField(help_text=SET_PATTERN)
    service = serializers.CharField(help_text=SERVICE)
    resource_group = serializers.CharField(help_text=RESOURCE_GROUP)
    weekdays = serializers.ListField(child=serializers.IntegerField(), help_text=WEEKDAYS)
    from_time = ClockTime(allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(allow_null=True, help_text=UNTIL_TIME)
    time_zone = serializers.CharField(help_text=TIME_ZONE)
    min_notice_seconds = serializers.IntegerField(allow_null=True)
    max_notice_seconds = serializers.IntegerField(allow_null=True)
    accepts = texts("Guards whose reason this rule gives.")
    author = serializers.CharField(help_text="Who made it; empty for a ready-made one that nobody has taken on.")
    created_at = Time()
    changed_at = Time()
    expires_at = Time(allow_null=True)
    seconds_left = SecondsUntil("expires_at", states=(), help_text="Until it expires; null when it never does.")
    approvals = serializers.IntegerField(help_text="How many approvals it has decided.")
    holds = serializers.IntegerField(help_text="How many events it has held.")
    last_decided_at = Time(allow_null=True)
    server_time = ServerTime()


class PastEventSerializer(serializers.Serializer[Any]):
    event_id = serializers.CharField()
    event_type = serializers.CharField()
    # A field of a shape that is named like an attribute of all fields; the metaclass keeps them apart.
    source = serializers.CharField()  # type: ignore[assignment]
    duration_seconds = serializers.IntegerField(allow_null=True)
    resources = texts()
    set = SetRefSerializer()
    first_seen_at = Time()
    not_before = Time(allow_null=True)
    notice_seconds = serializers.IntegerField(allow_null=True)
    would = word(Would, help_text="What the rule would have done.")
    sentence = serializers.CharField(help_text="The same in words, with the guard or the rule that came first.")
    status = word(EventStatus)
    approved_by = serializers.CharField(help_text="Who approved it in truth; empty when nobody did.")
    approved_at = Time(allow_null=True)
    approval_state = word(ApprovalState, empty=True)
    held_by = serializers.CharField(help_text="Who held it; empty when nobody did.")
    started_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)
    ended_as = word(EndedAs, empty=True)
    approved_elsewhere = serializers.BooleanField()


class DryRunSerializer(serializers.Serializer[Any]):
    wording = serializers.CharField(help_text="The rule in one sentence.")
    sentence = serializers.CharField(help_text="The result: `Would have approved 14 of 31; …`.")
    considered = serializers.IntegerField(help_text="How many stored events were looked at; at most 500.")
    matched = serializers.IntegerField(help_text="How many of them the rule matches.")
    approve = serializers.IntegerField(help_text="It would have approved so many at once.")
    later = serializers.IntegerField(help_text="So many once other events were over.")
    hold = serializers.IntegerField()
    leave = serializers.IntegerField()
    guarded = serializers.IntegerField(help_text="A guard that it does not accept stood against so many.")
    earlier = serializers.IntegerField(help_text="A rule before it matches so many.")
    agreed = serializers.IntegerField(help_text="Of those that it would have approved, so many were approved.")
    since = Time(allow_null=True)
    until = Time(allow_null=True)
    more = serializers.BooleanField(help_text="There are older events that were not looked at.")
    events = PastEventSerializer(many=True, help_text="Those that it matches, the newest first.")
    unknown = texts("What cannot be known of the past.")
    server_time = ServerTime()


class NoApprovalWindowSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    wording = serializers.CharField(help_text="When and where it holds, in words.")
    reason = serializers.CharField()
    open = serializers.BooleanField(help_text="It holds now.")
    over = serializers.BooleanField(help_text="Its end is past.")
    starts_at = Time(allow_null=True)
    ends_at = Time(allow_null=True)
    weekdays = serializers.ListField(child=serializers.IntegerField(), help_text=WEEKDAYS)
    from_time = ClockTime(allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(allow_null=True, help_text=UNTIL_TIME)
    time_zone = serializers.CharField(help_text=TIME_ZONE)
    set_pattern = serializers.CharField(help_text=SET_PATTERN)
    service = serializers.CharField(help_text=SERVICE)
    resource_group = serializers.CharField(help_text=RESOURCE_GROUP)
    author = serializers.CharField()
    created_at = Time()
    server_time = ServerTime()
