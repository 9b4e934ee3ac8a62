"""Sets, machines and join tokens."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import (
    SecondsUntil,
    ServerTime,
    SetRefSerializer,
    Time,
    presence_word,
    texts,
    word,
)
from fleet.domain.sets import SetSource
from fleet.domain.states import EventStatus


class OpenEventSerializer(serializers.Serializer[Any]):
    event_id = serializers.CharField()
    event_type = serializers.CharField()
    status = word(EventStatus)
    not_before = Time(allow_null=True)
    seconds_left = SecondsUntil(
        "not_before", states=[EventStatus.SCHEDULED], help_text="Until NotBefore; null once it has started."
    )
    resources = texts("Names, as Azure states them.")
    drill = serializers.BooleanField(help_text="A rehearsal.")


class MachineSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    vm_id = serializers.CharField()
    resource_name = serializers.CharField(help_text="What Azure puts into `Resources`.")
    set = SetRefSerializer()
    fault_domain = serializers.IntegerField(allow_null=True)
    update_domain = serializers.IntegerField(allow_null=True)
    zone = serializers.CharField()
    region = serializers.CharField()
    size = serializers.CharField()
    os_type = serializers.CharField()
    presence = presence_word()
    last_heard_at = Time(allow_null=True, help_text="When its agent was last heard.")
    last_poll_at = Time(allow_null=True, help_text="When that agent last had a good answer from the metadata service.")
    agent_version = serializers.CharField()
    clock_offset_seconds = serializers.FloatField(allow_null=True, help_text="How far its clock is ahead.")
    enrolled_at = Time()
    revoked_at = Time(allow_null=True)
    set_source = serializers.ChoiceField(
        [source.value for source in SetSource],
        allow_blank=True,
        help_text="Whose word about its set counts; empty when nobody says anything.",
    )
    warnings = texts("What is wrong with the machine, in sentences; also when sources disagree about its set.")


class MachineDetailSerializer(MachineSerializer):
    hit_by = OpenEventSerializer(many=True, help_text="Open events that name this machine in `Resources`.")
    other_events = OpenEventSerializer(many=True, help_text="Open events of its set that do not.")
    server_time = ServerTime()


class PresenceCountsSerializer(serializers.Serializer[Any]):
    live = serializers.IntegerField()
    late = serializers.IntegerField()
    silent = serializers.IntegerField()
    gone = serializers.IntegerField()
    expected = serializers.IntegerField()


class MissingMachineSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    vm_id = serializers.CharField(help_text="Empty when the inventory does not say it.")
    zone = serializers.CharField()
    region = serializers.CharField()
    size = serializers.CharField()
    imported_at = Time(help_text="When an inventory last listed it.")


class SetSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    kind = serializers.ChoiceField(
        choices=["availability_set", "scale_set", "cloud_service", "standalone", "provisional"]
    )
    name = serializers.CharField()
    service = serializers.CharField(help_text="What belongs together for the people who run it; may be empty.")
    subscription = serializers.CharField()
    resource_group = serializers.CharField()
    machines = MachineSerializer(many=True)
    without_agent = MissingMachineSerializer(
        many=True, help_text="Machines that an imported inventory lists and that have no agent."
    )
    presence = PresenceCountsSerializer(help_text="How many machines are how present.")
    open_events = OpenEventSerializer(many=True, help_text="By time left.")
    warnings = texts("What is wrong with the set, in sentences.")
    second_person = serializers.BooleanField(help_text="Approving in it always takes a second person.")
    server_time = ServerTime()


class JoinTokenSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Shown this once.")
    prefix = serializers.CharField(help_text="The public part of the token.")
    comment = serializers.CharField()
    set = serializers.CharField(source="set_name", help_text="As `kind:name`; empty if it names none.")
    created_at = Time()
    expires_at = Time()
    seconds_left = SecondsUntil("expires_at", states=(), help_text="Until it admits no agent any more.")
    server_time = ServerTime()
