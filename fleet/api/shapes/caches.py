"""Caches, their maintenance, and the notifications heard."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import CacheRefSerializer, MachineRefSerializer, ServerTime, Time, texts, word
from fleet.domain.maintenance import MaintenanceStatus
from fleet.projections.listening import COVERAGE_LOOKS

NOT_STATED = "Null: not stated."


class NodeSerializer(serializers.Serializer[Any]):
    ssl_port = serializers.IntegerField(help_text="With the host it names the node; nodes may share an address.")
    non_ssl_port = serializers.IntegerField(allow_null=True, help_text=NOT_STATED)
    ip_address = serializers.CharField(allow_null=True, help_text=NOT_STATED)
    shard = serializers.IntegerField(allow_null=True)
    is_replica = serializers.BooleanField(
        allow_null=True, help_text="Its role by the newest notification that tells; null when none does any more."
    )
    as_of = Time(help_text="When that was heard.")


class CoverageSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    state = serializers.ChoiceField(
        list(COVERAGE_LOOKS), help_text="The agent's word; `silent`: it listened, and the agent itself is not heard."
    )
    since = Time()
    reason = serializers.CharField()


class MaintenanceBriefSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    cache = CacheRefSerializer()
    tier = serializers.CharField(help_text="`basic`, `standard`, `premium`, or empty.")
    # Named like an attribute of all fields; the metaclass keeps them apart.
    source = serializers.CharField(help_text="Whose channel it was heard on.")  # type: ignore[assignment]
    shard = serializers.IntegerField(allow_null=True)
    status = word(MaintenanceStatus)
    first_at = Time(help_text="When its first notification was heard.")
    last_at = Time(help_text="When its last one was.")
    node_port = serializers.IntegerField(allow_null=True, help_text="The SSL port of the node that it is about.")
    partner_port = serializers.IntegerField(allow_null=True, help_text="The SSL port of the node that was promoted.")
    expected_at = Time(allow_null=True, help_text="The stated start; Starting counts over Scheduled.")
    earliest_at = Time(allow_null=True, help_text="When the node may go: three minutes before an approximate start.")
    approximate = serializers.BooleanField(help_text="Only Scheduled stated the start.")
    began_at = Time(allow_null=True, help_text="When the node went, as far as it is known.")
    failover_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)
    was_replica = serializers.BooleanField(allow_null=True, help_text="The node's role before.")
    is_replica = serializers.BooleanField(allow_null=True, help_text="The node's role after.")
    swapped = serializers.BooleanField(help_text="A primary was hit: its replica is the primary now.")
    effect = serializers.CharField(help_text="What it does to the cache, in one sentence.")
    server_time = ServerTime()


class ReporterSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    first_at = Time()
    copies = serializers.IntegerField()


class NotificationSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    cache = CacheRefSerializer()
    source = serializers.CharField()  # type: ignore[assignment]
    type = serializers.CharField(allow_null=True, help_text="The documented name, else the line's own word.")
    start_time = Time(allow_null=True, help_text=NOT_STATED)
    is_replica = serializers.BooleanField(allow_null=True, help_text=NOT_STATED)
    ip_address = serializers.CharField(allow_null=True, help_text=NOT_STATED)
    ssl_port = serializers.IntegerField(allow_null=True, help_text=NOT_STATED)
    non_ssl_port = serializers.IntegerField(allow_null=True, help_text=NOT_STATED)
    shard = serializers.IntegerField(allow_null=True)
    raw = serializers.CharField(help_text="The line as it was heard.")
    raw_base64 = serializers.CharField(help_text="Its bytes, where they are no text; else empty.")
    flags = texts("What could not be read, in words.")
    late = serializers.BooleanField(help_text="It arrived after the start that it announces.")
    first_at = Time(help_text="When the first machine heard it.")
    last_at = Time(help_text="When the last one did.")
    received_at = Time(help_text="When it was here.")
    maintenance_id = serializers.IntegerField(allow_null=True)
    reported_by = ReporterSerializer(many=True)
    meaning = serializers.CharField(help_text="What it means for a program that uses the cache.")


class MaintenanceSerializer(MaintenanceBriefSerializer):
    notifications = NotificationSerializer(many=True, help_text="Its members, oldest first.")


class MaintenanceDetailSerializer(MaintenanceSerializer):
    unheard = serializers.CharField(help_text="What silence does not prove, where nobody listened; else empty.")


class CacheSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    host = serializers.CharField()
    tier = serializers.CharField(help_text="`basic`, `standard`, `premium`, or empty.")
    source = serializers.CharField(help_text="Whose channel it has.")  # type: ignore[assignment]
    service = serializers.CharField(help_text="That of all its listeners, where they share one; may be empty.")
    divisor = serializers.IntegerField(help_text="How many ports make a shard.")
    nodes = NodeSerializer(many=True)
    coverage = CoverageSerializer(many=True, help_text="Each agent's state, and since when.")
    maintenance = MaintenanceBriefSerializer(allow_null=True, help_text="What is announced or under way.")
    server_time = ServerTime()
