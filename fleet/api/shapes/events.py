"""Drills: what one is begun with, and its report."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes import decisions  # noqa: F401 - events hold approvals, claims and holds
from fleet.api.shapes.decisions import override_field, shown_field, versions_field, with_reasons
from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import comment_field
from fleet.domain.approvals.guards import Guard
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
from fleet.projections.events.detail import EventDetail, HitMachine, SightingRow
from fleet.projections.events.rows import BlastRadius, EventRow
from fleet.projections.intake import RawDocument, Reading
from fleet.projections.orders import ByHandRow, HandMachine
from fleet.projections.timeline.entries import TimelineRow
from fleet.projections.waves import WaveMember, WaveRow
from fleet.wording.events import effect_of
from fleet.wording.say import text_of
from fleet.wording.times import API


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


# Scheduled events, their timeline and their documents.

PRESENCE = "How present its agent is."

EventShape = shape(
    EventRow,
    {
        "certainty": "Whether its ending was seen or inferred.",
        "approved_elsewhere": "It started before NotBefore without our approval.",
        "duration_seconds": "-1: Azure does not know.",
        "seconds_left": "Until NotBefore, never below 0; null once it is not scheduled or has no time.",
        "resources": "Names, as Azure states them.",
        "notice_seconds": "NotBefore less the first sighting.",
        "started_seconds": "How long it has been, or was, Started.",
        "approval_to_start_seconds": "From our approval to Started.",
        "watched": "A live machine can tell how it goes on.",
        "version": "Moves with status, NotBefore, Resources, type, source and duration.",
        "approval": "The live approval, else the newest one.",
        "claim": "Who is on it.",
        "hold": "Who wants it to run by itself.",
        "drill": "A rehearsal: Azure knows nothing of it.",
        "needs_decision": "Nobody has decided, or a second person has to agree. Left to Azure by a person is decided.",
        "if_nobody_acts": "What happens if nobody acts, in one sentence.",
    },
    without=("id",),
    properties=("started_seconds", "approval_to_start_seconds"),
)
SightingShape = shape(
    SightingRow,
    {
        "presence": PRESENCE,
        "foreign": "From a machine of another set: kept, without a vote.",
        "says": "`Scheduled`, `Started`, `no longer listed`, or Azure's own other word.",
        "delay_seconds": "After the first machine of all that saw it.",
        "differs": "In what this machine's listing differs from the event as computed.",
    },
)
GuardShape = shape(
    Guard,
    {
        "blocks": "It needs more than a reason or a second person.",
        "overridable": "An approver may override it though it blocks, with a reason.",
    },
    without=("values",),
    properties=("sentence", "blocks", "shown"),
)
HitMachineShape = shape(
    HitMachine,
    {"name": "As Azure states it in `Resources`.", "failed_hook": "The hook that did not succeed; may be empty."},
)
HandMachineShape = shape(
    HandMachine,
    {
        "presence": PRESENCE,
        "lists_it": "Its newest document lists the event.",
        "windows": "It wants the command for PowerShell.",
    },
)
ByHandShape = shape(
    ByHandRow,
    {
        "reason": "Why no agent does it.",
        "event_id": "Spelled as the machine spelled it.",
        "linux": "For a shell with curl.",
        "windows": "For PowerShell.",
        "machines": "On any one of them.",
    },
)
BlastRadiusShape = shape(BlastRadius, properties=("summary",))


class TypeText(serializers.CharField):
    """What is known of the event's type, as far as it is true of this event."""

    def __init__(self, known: str, **kwargs: Any) -> None:
        super().__init__(source="event", **kwargs)
        self.known = known

    def to_representation(self, event: Any) -> Any:
        return getattr(effect_of(event), self.known)


class TypeNumber(TypeText, serializers.IntegerField):
    """The same, where it is a number."""


EventDetailShape = shape(
    EventDetail,
    {
        "approvals": "Newest first.",
        "guards": "What speaks against approving now.",
        "asked": "Who will be asked to start it, in this order.",
        "other_open": "Other open events of the set.",
        "not_ready": "Names in `resources` that are not prepared: `prepared` waits for them.",
        "by_hand": "What can be done where no agent passes an approval on; null while agents do it.",
        "advice": "What Microsoft advises for such an event; may be empty.",
        "recommendation": "What is recommended here, and why; null where there is nothing left to decide. Nothing acts"
        " on it.",
        "decide_by": "Decided later than that, Azure may be asked too late.",
    },
    beside=("event",),
    without=("place", "drill_id", "card"),
    properties=("recommendation", "decide_by"),
    effect=TypeText("effect", help_text="What it does to a machine, or that it did nothing."),
    lost=TypeText("lost", help_text="What does not come back; may be empty."),
    documented_notice_seconds=TypeNumber("documented_notice_seconds", allow_null=True),
)


class EntryText(serializers.CharField):
    """What an entry tells, in UTC."""

    def to_representation(self, row: Any) -> str:
        return text_of(row, API)


EntryShape = shape(
    TimelineRow,
    {
        "at": "When it happened.",
        "recorded_at": "When it was written.",
        "drill": "It tells of a drill.",
        "actor": "Whoever acted, by name.",
        "actor_kind": "Of what kind they are: a machine may call itself what a person is called. Null where a"
        " later release tells what is not known here.",
        "via": "`page`, `api`, `slack`, `pagerduty`, `rule`, `command`, `agent` or `relay`.",
        "token_name": "The token that the call carried; empty where there was none.",
        "why": "The reason that was given; may be empty.",
        "before": "What an act changed, by field, as it was.",
        "after": "The same, as it is since then.",
        "series": "What people read as one line: the orders of one approval that Azure answered by being busy,"
        " listeners of a cache that were cut off together, or machines that enrolled together, as far as they are on"
        " this page. Null for all other entries.",
        "request_id": "Of the request behind an act; else empty.",
        "address": "Where that request came from; else empty.",
    },
    name="Entry",
    text=EntryText(source="*", read_only=True),
)
ReadingShape = shape(Reading)
DocumentShape = shape(
    RawDocument,
    {
        "hash": "SHA-256 of its bytes.",
        "body": "As received.",
        "flags": "What was odd about it.",
        "readings": "Who read it, and when first.",
        "compared_with": "The hash of the document read before it.",
        "difference": "Lines of a unified diff against that one.",
    },
    name="Document",
)


class Documents(serializers.Serializer[Any]):
    """A page of them, and what is left out of all pages."""

    next = serializers.URLField(allow_null=True, help_text="The address of the next page.")
    previous = serializers.URLField(allow_null=True, help_text="The address of the page before.")
    results = DocumentShape(many=True)
    left_out = serializers.IntegerField(help_text="Machines whose documents are not looked at, where there are many.")


# Waves: several events approved in turn.


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
