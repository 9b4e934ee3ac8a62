"""Waves: several events approved in turn."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.decisions import override_field, shown_field, versions_field, with_reasons
from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import comment_field
from fleet.operations.inputs import RequestSerializer
from fleet.projections.waves import WaveMember, WaveRow


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
        allow_blank=True,
        default="",
        max_length=200,
        help_text="Instead of `events`: every open event of this service that waits for a decision, the soonest first.",
    )
    comment = comment_field(help_text="Why; it stands in the timeline.")
    override = override_field()
    shown = shown_field()
    expected_versions = versions_field()

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if bool(values["events"]) == bool(values["service"]):
            raise serializers.ValidationError("Say `events`, or a `service`.")
        return values | {"override": with_reasons(values["override"], values["comment"])}


WaveMemberShape = shape(
    WaveMember,
    {
        "resources": "Names, as Azure states them.",
        "missing": "Machines that have not come back yet.",
        "sentence": "What it waits for, or how it went.",
    },
)
WaveShape = shape(
    WaveRow,
    {
        "via": "Through what: `page` or `api`.",
        "reason": "What it waits for; once it is over, how it ended.",
        "members": "In turn.",
    },
)
