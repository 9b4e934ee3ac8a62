"""Drills: what one is begun with, and its report."""

from rest_framework import serializers

from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import comment_field
from fleet.domain.drills import (
    DEFAULT_DURATION_SECONDS,
    DEFAULT_NOTICE_SECONDS,
    DEFAULT_TYPE,
    DURATION_SECONDS,
    KINDS,
    NOTICE_SECONDS,
)
from fleet.operations.inputs import RequestSerializer
from fleet.projections.drills import DrillReport, DrillRow, DrillStep, MachineReport


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


DrillShape = shape(
    DrillRow,
    {
        "event_id": "Begins with `DRILL-`; it takes the calls of any event.",
        "machines": "Those that the event names.",
        "ends_by": "When it is over at the latest, whatever happens.",
        "outcome": "Null while it goes on.",
        "seconds": "How long it took; null while it goes on.",
    },
    properties=("seconds",),
)
DrillStepShape = shape(DrillStep, {"seconds": "Since the step before; null at the first."})
DrillMachineShape = shape(
    MachineReport,
    {"hit": "The event names it, so its hooks run.", "left_out": "Why it takes no part; empty where it does."},
    name="DrillMachine",
    properties=("took_part",),
)
DrillReportShape = shape(
    DrillReport,
    {
        "next_step": "What to do next, or what is waited for, in one sentence.",
        "steps": "Of the whole, in the order of their times.",
    },
)
