"""Drills: what one is begun with, and its report."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import MachineRefSerializer, ServerTime, SetRefSerializer, Time, texts, word
from fleet.api.shapes.requests import RequestSerializer, comment_field
from fleet.domain.drills import (
    DEFAULT_DURATION_SECONDS,
    DEFAULT_NOTICE_SECONDS,
    DEFAULT_TYPE,
    DURATION_SECONDS,
    KINDS,
    NOTICE_SECONDS,
    Outcome,
)
from fleet.domain.states import EventStatus


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
    comment = comment_field(help_text="Why; it stands in the timeline.")


class StopDrillSerializer(RequestSerializer):
    comment = comment_field(required=False, default="", help_text="Why; it stands in the timeline.")


class DrillSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    event_id = serializers.CharField(help_text="Begins with `DRILL-`; it takes the calls of any event.")
    event_type = serializers.CharField()
    event_status = word(EventStatus)
    set = SetRefSerializer()
    machines = texts("Those that the event names.")
    notice_seconds = serializers.IntegerField()
    duration_seconds = serializers.IntegerField()
    started_by = serializers.CharField()
    via = serializers.CharField()
    token_name = serializers.CharField()
    comment = serializers.CharField()
    created_at = Time()
    not_before = Time(allow_null=True)
    ends_by = Time(help_text="When it is over at the latest, whatever happens.")
    closed_at = Time(allow_null=True)
    outcome = word(Outcome, empty=True, help_text="Null while it goes on.")
    reason = serializers.CharField()
    seconds = serializers.FloatField(allow_null=True, help_text="How long it took; null while it goes on.")


class DrillStepSerializer(serializers.Serializer[Any]):
    # A field of a shape that is named like an attribute of all fields; the metaclass keeps them apart.
    label = serializers.CharField()  # type: ignore[assignment]
    at = Time()
    seconds = serializers.FloatField(allow_null=True, help_text="Since the step before; null at the first.")
    detail = serializers.CharField()


class DrillMachineSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    hit = serializers.BooleanField(help_text="The event names it, so its hooks run.")
    took_part = serializers.BooleanField()
    left_out = serializers.CharField(help_text="Why it takes no part; empty where it does.")
    steps = DrillStepSerializer(many=True)


class DrillReportSerializer(serializers.Serializer[Any]):
    drill = DrillSerializer()
    next_step = serializers.CharField(help_text="What to do next, or what is waited for, in one sentence.")
    steps = DrillStepSerializer(many=True, help_text="Of the whole, in the order of their times.")
    machines = DrillMachineSerializer(many=True)
    server_time = ServerTime()
