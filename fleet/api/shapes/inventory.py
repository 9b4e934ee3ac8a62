"""Blind spots, and what an import found."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import CacheRefSerializer, MachineRefSerializer, SetRefSerializer, texts, word
from fleet.domain.blind_spots import ORDER, Certainty


class BlindSpotSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(ORDER)
    title = serializers.CharField()
    certainty = word(Certainty, help_text="How sure it is.")
    reason = serializers.CharField(help_text="One or two sentences.")
    advice = serializers.CharField(help_text="What to do.")
    set = SetRefSerializer(allow_null=True, help_text="Null for caches, and for machines that are in none yet.")
    machines = MachineRefSerializer(many=True, help_text="Those concerned that have an agent.")
    names = texts("All machines concerned; the host of a cache.")
    cache = CacheRefSerializer(allow_null=True, help_text="The cache that it is about.")


class ImportedSerializer(serializers.Serializer[Any]):
    machines = serializers.IntegerField(help_text="How many machines the inventory lists.")
    new = serializers.IntegerField(help_text="Those among them that no inventory has listed before.")
    without_agent = serializers.IntegerField(help_text="Those among them that have no agent.")
    dropped = serializers.IntegerField(help_text="Machines that a complete inventory does not list any more.")
    scale_sets = serializers.IntegerField(help_text="Scale sets of which it says whether they announce upgrades.")
