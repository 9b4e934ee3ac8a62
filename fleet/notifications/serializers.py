"""Channels, routes and the log of messages."""

from dataclasses import dataclass
from typing import Annotated, Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.api.shapes.derive import shape
from fleet.api.shapes.rules import (
    FROM_TIME,
    RESOURCE_GROUP,
    SERVICE,
    SET_PATTERN,
    TIME_ZONE,
    UNTIL_TIME,
    days,
    seconds,
    text,
    words,
)
from fleet.api.shapes.strict import ToldText
from fleet.domain.event_types import ADVICE_TYPES, TYPES, Severity
from fleet.domain.policy.rules import MAX_NAME, MAX_PATTERN, SOURCES
from fleet.domain.shapes import InApi
from fleet.notifications.kinds import KINDS, ChannelField
from fleet.notifications.log import AttemptRow, ChannelTrial, MessageRow
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import ChannelRow
from fleet.operations.inputs import ClockTime, RequestSerializer

LEVEL = {"type": "string", "enum": [level.value for level in Severity]}
OWN = "For oneself alone, and not the installation's."
MOMENTS = "Empty: every moment."
SEVERITY = "Empty: however bad it is."
UNCLAIMED_AFTER = "A step of escalation: so long after the first sighting, while nobody is on it."
BEFORE_DECIDE_BY = "A step of escalation: so long before the time to decide by, while nobody has decided."


@extend_schema_field(
    {
        "oneOf": [
            {"type": "string", "maxLength": 10_000},
            {"type": "array", "items": {"type": "string", "maxLength": 10_000}, "maxItems": 200},
            {"type": "null"},
        ]
    }
)
class TextOrLines(serializers.Field[Any, Any, Any, Any]):
    """A text, or several."""

    def to_internal_value(self, data: Any) -> Any:
        lines = data if isinstance(data, list) else [data]
        if len(lines) > 200 or not all(isinstance(line, str) and len(line) <= 10_000 for line in lines):
            raise serializers.ValidationError("Give a text, or a list of texts.")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


def _setting(name: str, found: list[tuple[str, ChannelField]]) -> serializers.Field[Any, Any, Any, Any]:
    kinds = ", ".join(f"`{kind}`" for kind, _ in found)
    secret = " Never shown again." if any(field.secret for _, field in found) else ""
    help_text = f"Of {kinds}.{secret}"
    if any(field.input == "lines" for _, field in found):
        return TextOrLines(required=False, allow_null=True, help_text=help_text)
    return serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=10_000, help_text=help_text
    )


def _settings() -> dict[str, Any]:
    """What kinds of channels want to be told, each name once; that which Drydock makes itself is not among it."""
    named: dict[str, list[tuple[str, ChannelField]]] = {}
    for kind in KINDS.values():
        for field in kind.fields:
            if not field.made:
                named.setdefault(field.name, []).append((kind.name, field))
    return {name: _setting(name, found) for name, found in named.items()}


SETTINGS = tuple(_settings())


class ChangeChannelSerializer(RequestSerializer):
    name = text("What people call it; no two channels share one.", most=MAX_NAME)
    enabled = serializers.BooleanField(required=False, help_text="Whether it is told anything.")

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **_settings()}


class MakeChannelSerializer(ChangeChannelSerializer):
    name = text("What people call it; no two channels share one.", most=MAX_NAME, required=True)
    kind = ToldText(told={"enum": list(KINDS)}, max_length=100, help_text="Which fields it takes follows from it.")
    own = serializers.BooleanField(required=False, default=False, help_text=OWN)


class HoursSerializer(RequestSerializer):
    weekdays = days()
    from_time = ClockTime(required=False, allow_null=True, help_text=FROM_TIME)
    until_time = ClockTime(required=False, allow_null=True, help_text=UNTIL_TIME)
    time_zone = text(TIME_ZONE, most=MAX_NAME)


@extend_schema_field({"oneOf": [LEVEL, {"type": "array", "items": LEVEL, "maxItems": 50}]})
class OneOrSeveral(serializers.ListField):
    """A list of words; one alone may be given as it is."""

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value([data] if isinstance(data, str) else data)


class RouteFieldsSerializer(RequestSerializer):
    """What a route says; what is left out stays as it is, or matches everything."""

    name = text("What people call it; no two routes share one.", most=MAX_NAME)
    channel = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=2**62,
        help_text="The id of a channel; null: every channel of the installation.",
    )
    moments = words(MOMENTS, [moment for moment in NotificationType if not moment.declared.personal])
    types = words("Empty: every type.", (*TYPES, *ADVICE_TYPES))
    sources = words("Empty: every source.", SOURCES)
    severity = OneOrSeveral(
        child=serializers.CharField(max_length=100), required=False, max_length=50, help_text=SEVERITY
    )
    set = text(SET_PATTERN, most=MAX_PATTERN)
    service = text(SERVICE, most=MAX_PATTERN)
    resource_group = text(RESOURCE_GROUP, most=MAX_PATTERN)
    hours = HoursSerializer(
        required=False, allow_null=True, help_text="When it tells anything; null, and what is left out: always."
    )
    unclaimed_after_seconds = seconds(UNCLAIMED_AFTER)
    before_decide_by_seconds = seconds(BEFORE_DECIDE_BY)


class ChangeRouteSerializer(RouteFieldsSerializer):
    enabled = serializers.BooleanField(required=False, help_text="A new route is on unless this says so.")


class MakeRouteSerializer(ChangeRouteSerializer):
    own = serializers.BooleanField(required=False, default=False, help_text=OWN)


class TryRouteSerializer(RequestSerializer):
    id = serializers.IntegerField(
        required=False, min_value=1, max_value=2**62, help_text="A saved route; with `route` it is tried as changed."
    )
    route = RouteFieldsSerializer(required=False, help_text="One that is not saved, or what changes in a saved one.")
    own = serializers.BooleanField(required=False, default=False, help_text="Leave out what one may not hear alone.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "id" not in values and "route" not in values:
            raise serializers.ValidationError("Say which route: the `id` of a saved one, or a `route`.")
        return values


shape(ChannelRow, kind=serializers.ChoiceField(list(KINDS)))


@dataclass(frozen=True, slots=True)
class NewChannel:
    """A channel, and the secret that was made for it."""

    channel: Annotated[ChannelRow, InApi.FLATTENED]
    secret: Annotated[
        str | None, "Of a webhook, shown this once: what its messages are signed with. Null for other kinds."
    ]


shape(AttemptRow, name="DeliveryAttempt")
shape(
    MessageRow,
    moment=serializers.ChoiceField([moment.value for moment in NotificationType]),
    severity=serializers.ChoiceField([severity.value for severity in Severity]),
)


@dataclass(frozen=True, slots=True)
class SentAgain:
    """A delivery that is sent again."""

    delivery: Annotated[str, "The id under which it goes out, the same as before."]


TrialShape = shape(ChannelTrial, name="ChannelTest")
