"""Scheduled events, their timeline and their documents."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.approvals import ApprovalSerializer
from fleet.api.shapes.base import (
    CacheRefSerializer,
    MachineRefSerializer,
    ServerTime,
    SetRefSerializer,
    Time,
    presence_word,
    texts,
    word,
)
from fleet.domain.entries import EntryKind
from fleet.domain.guards import Need
from fleet.domain.preparing import Prepared
from fleet.domain.states import Certainty, EndedAs, EventStatus, Presence


class ClaimRefSerializer(serializers.Serializer[Any]):
    by = serializers.CharField()
    at = Time()
    comment = serializers.CharField()


class HoldRefSerializer(serializers.Serializer[Any]):
    by = serializers.CharField(help_text="A person, or the rule.")
    at = Time()
    reason = serializers.CharField()
    by_rule = serializers.BooleanField(help_text="A rule holds it: people may still decide.")


class EventSerializer(serializers.Serializer[Any]):
    event_id = serializers.CharField()
    event_type = serializers.CharField()
    resource_type = serializers.CharField()
    status = word(EventStatus)
    ended_as = word(EndedAs, empty=True)
    certainty = word(Certainty, empty=True, help_text="Whether its ending was seen or inferred.")
    approved_elsewhere = serializers.BooleanField(help_text="It started before NotBefore without our approval.")
    # A field of a shape that is named like an attribute of all fields; the metaclass keeps them apart.
    source = serializers.CharField()  # type: ignore[assignment]
    description = serializers.CharField()
    duration_seconds = serializers.IntegerField(allow_null=True, help_text="-1: Azure does not know.")
    not_before = Time(allow_null=True)
    seconds_left = serializers.FloatField(
        allow_null=True, help_text="Until NotBefore, never below 0; null once it is not scheduled or has no time."
    )
    resources = texts("Names, as Azure states them.")
    set = SetRefSerializer()
    first_seen_at = Time()
    notice_seconds = serializers.IntegerField(allow_null=True, help_text="NotBefore less the first sighting.")
    started_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)
    started_seconds = serializers.FloatField(allow_null=True, help_text="How long it has been, or was, Started.")
    approval_to_start_seconds = serializers.FloatField(allow_null=True, help_text="From our approval to Started.")
    watched = serializers.BooleanField(help_text="A live machine can tell how it goes on.")
    warnings = texts()
    version = serializers.IntegerField(help_text="Moves with status, NotBefore, Resources, type, source and duration.")
    approval = ApprovalSerializer(allow_null=True, help_text="The live approval, else the newest one.")
    claim = ClaimRefSerializer(allow_null=True, help_text="Who is on it.")
    hold = HoldRefSerializer(allow_null=True, help_text="Who wants it to run by itself.")
    drill = serializers.BooleanField(help_text="A rehearsal: Azure knows nothing of it.")
    needs_decision = serializers.BooleanField(
        help_text="Nobody has decided, or a second person has to agree. What a person holds is decided."
    )
    if_nobody_acts = serializers.CharField(help_text="What happens if nobody acts, in one sentence.")
    server_time = ServerTime()


class SightingSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    presence = presence_word()
    foreign = serializers.BooleanField(help_text="From a machine of another set: kept, without a vote.")
    says = serializers.CharField(help_text="`Scheduled`, `Started`, `no longer listed`, or Azure's own other word.")
    first_at = Time()
    delay_seconds = serializers.FloatField(help_text="After the first machine of all that saw it.")
    started_at = Time(allow_null=True)
    listed_at = Time()
    gone_at = Time(allow_null=True)
    incarnation = serializers.IntegerField(allow_null=True)
    differs = texts("In what this machine's word differs from the event as computed.")


class GuardSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    sentence = serializers.CharField()
    needs = word(Need)
    blocks = serializers.BooleanField(help_text="It needs more than a reason or a second person.")
    overridable = serializers.BooleanField(help_text="An approver may go past it though it blocks, with a reason.")


class HitMachineSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="As Azure states it in `Resources`.")
    machine = MachineRefSerializer(allow_null=True)
    presence = word(Presence, empty=True)
    fault_domain = serializers.IntegerField(allow_null=True)
    update_domain = serializers.IntegerField(allow_null=True)
    zone = serializers.CharField()
    prepared = word(Prepared)
    failed_hook = serializers.CharField(help_text="The hook that did not succeed; may be empty.")


class BlastRadiusSerializer(serializers.Serializer[Any]):
    stay_up = serializers.IntegerField()
    total = serializers.IntegerField()
    hit = serializers.IntegerField()
    not_live = serializers.IntegerField()
    summary = serializers.CharField()


class HandMachineSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    presence = presence_word()
    lists_it = serializers.BooleanField(help_text="Its newest document lists the event.")
    windows = serializers.BooleanField(help_text="It wants the command for PowerShell.")


class ByHandSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(help_text="Why no agent does it.")
    event_id = serializers.CharField(help_text="Spelled as the machine spelled it.")
    linux = serializers.CharField(help_text="For a shell with curl.")
    windows = serializers.CharField(help_text="For PowerShell.")
    machines = HandMachineSerializer(many=True, help_text="On any one of them.")


class EventDetailSerializer(EventSerializer):
    effect = serializers.CharField(help_text="What this type does to a machine.")
    lost = serializers.CharField(help_text="What does not come back; may be empty.")
    documented_notice_seconds = serializers.IntegerField(allow_null=True)
    sightings = SightingSerializer(many=True)
    approvals = ApprovalSerializer(many=True, help_text="Newest first.")
    guards = GuardSerializer(many=True, help_text="What speaks against approving now.")
    hit = HitMachineSerializer(many=True)
    blast = BlastRadiusSerializer()
    asked = MachineRefSerializer(many=True, help_text="Who will be asked to start it, in this order.")
    seen_by = MachineRefSerializer(many=True)
    not_seen_by = MachineRefSerializer(many=True)
    other_open = texts("Other open events of the set.")
    not_ready = texts("Names in `resources` that are not prepared: `prepared` waits for them.")
    by_hand = ByHandSerializer(
        allow_null=True, help_text="What can be done where no agent passes an approval on; null while agents do it."
    )
    advice = serializers.CharField(help_text="What Microsoft advises for such an event; may be empty.")


class EntrySerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    at = Time(help_text="When it happened.")
    recorded_at = Time(help_text="When it was written.")
    kind = word(EntryKind)
    event_id = serializers.CharField(allow_null=True)
    event_type = serializers.CharField(allow_null=True)
    drill = serializers.BooleanField(help_text="It tells of a drill.")
    set = SetRefSerializer(allow_null=True)
    machine = MachineRefSerializer(allow_null=True)
    approval_id = serializers.IntegerField(allow_null=True)
    cache = CacheRefSerializer(allow_null=True)
    maintenance_id = serializers.IntegerField(allow_null=True)
    actor = serializers.CharField(help_text="A person, a machine, or Azure.")
    via = serializers.CharField(help_text="`page`, `api`, `rule`, `command`, `agent` or `relay`.")
    token_name = serializers.CharField(help_text="The token that the call carried; empty where there was none.")
    text = serializers.CharField()
    why = serializers.CharField(help_text="The reason that was given; may be empty.")
    before = serializers.DictField(allow_null=True, help_text="What an act changed, by field, as it was.")
    after = serializers.DictField(allow_null=True, help_text="The same, as it is since then.")
    request_id = serializers.CharField(help_text="Of the request behind an act; else empty.")
    address = serializers.CharField(help_text="Where that request came from; else empty.")
    # As `source` above.
    data = serializers.DictField()  # type: ignore[assignment]


class ReadingSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    incarnation = serializers.IntegerField(allow_null=True)
    first_at = Time()


class DocumentSerializer(serializers.Serializer[Any]):
    hash = serializers.CharField(help_text="SHA-256 of its bytes.")
    body = serializers.CharField(help_text="As received.")
    readable = serializers.BooleanField()
    flags = texts("What was odd about it.")
    lists_event = serializers.BooleanField()
    readings = ReadingSerializer(many=True, help_text="Who read it, and when first.")
    compared_with = serializers.CharField(allow_null=True, help_text="The hash of the document read before it.")
    difference = texts("Lines of a unified diff against that one.")


class DocumentsSerializer(serializers.Serializer[Any]):
    """All of them: `next` and `previous` are there because every list has them."""

    next = serializers.URLField(allow_null=True, help_text="Always null: all are here.")
    previous = serializers.URLField(allow_null=True, help_text="Always null.")
    results = DocumentSerializer(source="documents", many=True)
    left_out = serializers.IntegerField(help_text="Machines whose documents are not looked at, where there are many.")
