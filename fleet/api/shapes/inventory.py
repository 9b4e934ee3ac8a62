"""Blind spots, and what an import found."""

from rest_framework import serializers

from fleet.api.shapes.derive import shape
from fleet.domain.blind_spots.find import ORDER
from fleet.operations.machines.inventory import Imported
from fleet.projections.blind_spots import BlindSpotRow

BlindSpotShape = shape(
    BlindSpotRow,
    {
        "certainty": "How sure it is.",
        "reason": "One or two sentences.",
        "advice": "What to do.",
        "set": "Null for caches, and for machines that are in none yet.",
        "machines": "Those concerned that have an agent, as far as `names` holds them.",
        "names": "The machines concerned, at most 500 of `count`; the host of a cache.",
        "count": "How many machines are concerned.",
        "cache": "The cache that it is about.",
        "event_id": "The event that is set aside; else empty.",
    },
    without=("part",),
    code=serializers.ChoiceField(ORDER),
)
ImportedShape = shape(
    Imported,
    {
        "machines": "How many machines the inventory lists.",
        "new": "Those among them that no inventory has listed before.",
        "without_agent": "Those among them that have no agent.",
        "dropped": "Machines that a complete inventory does not list any more.",
        "scale_sets": "Scale sets of which it says whether they announce upgrades.",
        "refused": "What it says in vain: the machine is confined to another set.",
    },
)
