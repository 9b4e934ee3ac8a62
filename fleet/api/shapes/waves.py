"""Waves: several events approved in turn."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import ServerTime, SetRefSerializer, Time, texts, word
from fleet.api.shapes.deciding import override_field, with_reasons
from fleet.api.shapes.requests import RequestSerializer, comment_field
from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.waves import Phase, WaveState


class BeginWaveSerializer(RequestSerializer):
    events = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        default=list,
        max_length=100,
        help_text="EventIds, in the order of their turns.",
    )
    service = serializers.CharField(
        required=False,
        default="",
        max_length=200,
        help_text="Instead of `events`: every open event of this service that waits for a decision, the soonest first.",
    )
    comment = comment_field(help_text="Why; it stands in the timeline.")
    override = override_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if bool(values["events"]) == bool(values["service"]):
            raise serializers.ValidationError("Say `events`, or a `service`.")
        return values | {"override": with_reasons(values["override"], values["comment"])}


class StopWaveSerializer(RequestSerializer):
    comment = comment_field(required=False, default="", help_text="Why; it stands in the timeline.")


class WaveMemberSerializer(serializers.Serializer[Any]):
    turn = serializers.IntegerField()
    event_id = serializers.CharField()
    event_type = serializers.CharField()
    event_status = word(EventStatus)
    resources = texts("Names, as Azure states them.")
    set = SetRefSerializer()
    not_before = Time(allow_null=True)
    approval_id = serializers.IntegerField()
    approval_state = word(ApprovalState)
    phase = word(Phase)
    missing = texts("Machines that have not come back yet.")
    sentence = serializers.CharField(help_text="What it waits for, or how it went.")


class WaveSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    service = serializers.CharField()
    state = word(WaveState)
    by = serializers.CharField()
    via = serializers.CharField(help_text="Through what: `page` or `api`.")
    token_name = serializers.CharField()
    comment = serializers.CharField()
    created_at = Time()
    closed_at = Time(allow_null=True)
    reason = serializers.CharField(help_text="What it waits for; once it is over, how it ended.")
    members = WaveMemberSerializer(many=True, help_text="In turn.")
    server_time = ServerTime()
