"""Channels, routes and the log of messages."""

from dataclasses import dataclass
from typing import Any

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
from fleet.notifications.dry_run import MomentCount, PastMessage, RouteDryRun, WeekCount
from fleet.notifications.kinds import KINDS, ChannelField
from fleet.notifications.log import AttemptRow, ChannelTrial, MessageRow, SentBy
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import ChannelRow, RouteHours, RouteRow
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


ChannelShape = shape(
    ChannelRow,
    {
        "own": OWN,
        "enabled": "Whether it is told anything.",
        "posts": "It takes messages; false for one that mirrors what is open.",
        "health": "`new`: nothing was sent yet; `held`: it asked to wait, see `held_until`.",
        "settings": "Null for who may not change it. Secrets are never shown.",
        "secrets_set": "Which secrets are set, by name.",
        "secret_made_at": "Of a webhook: since when its secret counts.",
        "earlier_secret_until": "Until then it is signed with the secret before, too.",
        "last_error": "A code: why the last attempt failed.",
        "last_answer": "What it said to the last attempt.",
        "failures": "How many attempts in a row have failed.",
        "held_until": "Nothing is sent before then.",
        "may_change": "Whether the caller may change it.",
    },
    name="Channel",
    kind=serializers.ChoiceField(list(KINDS)),
)


@dataclass(frozen=True, slots=True)
class NewChannel:
    """A channel, and the secret that was made for it."""

    channel: ChannelRow
    secret: str | None


NewChannelShape = shape(
    NewChannel,
    {"secret": "Of a webhook, shown this once: what its messages are signed with. Null for other kinds."},
    beside=("channel",),
)
RouteHoursShape = shape(
    RouteHours,
    {"from_time": FROM_TIME, "until_time": UNTIL_TIME, "time_zone": TIME_ZONE},
)
RouteShape = shape(
    RouteRow,
    {
        "own": OWN,
        "version": "Moves with each change; a message keeps the one that sent it.",
        "wording": "The whole route in one sentence, as it is kept with its messages.",
        "channel": "Null: every channel of the installation.",
        "leads_nowhere": "Its channel is switched off.",
        "moments": MOMENTS,
        "types": "Empty: every type.",
        "sources": "Empty: every source.",
        "severity": SEVERITY,
        "set": SET_PATTERN,
        "service": SERVICE,
        "resource_group": RESOURCE_GROUP,
        "unclaimed_after_seconds": UNCLAIMED_AFTER,
        "before_decide_by_seconds": BEFORE_DECIDE_BY,
        "may_change": "Whether the caller may change it.",
    },
    name="Route",
)
AttemptShape = shape(
    AttemptRow,
    {
        "took_seconds": "Null while it is under way.",
        "ok": "Null where nobody knows how it went.",
        "status": "The receiver's HTTP or SMTP status.",
        "error": "A code; empty where it went well.",
        "answer": "What the receiver said; null for who may not change the channel.",
    },
    name="DeliveryAttempt",
)
SentByShape = shape(SentBy, {"wording": "What the route said when it sent it."}, name="SentBy")
MessageShape = shape(
    MessageRow,
    {
        "subject": "What belongs together, such as `event:7`.",
        "event": "The EventId; null where it is about something else.",
        "channel": "Null where no route wanted it: nobody was told.",
        "due_at": "Not told before then.",
        "why": "A code: why it was dropped or given up.",
        "route": "The route that sent it.",
        "delivery": "The id under which it went out, alone or with others; the same at each attempt.",
        "next_attempt_at": "Null where none comes.",
        "may_send_again": "Whether the caller may have it sent again.",
    },
    name="Message",
    moment=serializers.ChoiceField([moment.value for moment in NotificationType]),
    severity=serializers.ChoiceField([severity.value for severity in Severity]),
)


@dataclass(frozen=True, slots=True)
class SentAgain:
    """A delivery that is sent again."""

    delivery: str


SentAgainShape = shape(SentAgain, {"delivery": "The id under which it goes out, the same as before."})
TrialShape = shape(
    ChannelTrial,
    {"ok": "Whether the channel took it; null while nobody knows: look again in the channel's `health`."},
    name="ChannelTest",
)
MomentCountShape = shape(MomentCount)
WeekCountShape = shape(WeekCount, {"begins": "The Monday, in the route's time zone."})
PastMessageShape = shape(PastMessage, {"at": "When it would have been told."})
RouteDryRunShape = shape(
    RouteDryRun,
    {
        "wording": "The route in one sentence.",
        "sentence": "The result: `In the last 30 days: 31 messages, 4 at night.`",
        "considered": "How many moments were looked at.",
        "messages": "How many of them the route would have told.",
        "posts": "In how many minutes: what falls into one goes out together where it is much.",
        "at_night": "Between 22:00 and 07:00 of the route's time zone.",
        "newest": "The ten newest.",
        "more": "There were more than 2,000 events or maintenances: the older ones were not looked at.",
        "unknown": "What cannot be known of the past.",
    },
    name="RouteDryRun",
)
