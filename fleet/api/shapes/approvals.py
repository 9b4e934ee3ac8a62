"""Approvals and how far they got."""

from typing import Any

from rest_framework import serializers

from fleet.api.shapes.base import (
    MachineRefSerializer,
    RuleRefSerializer,
    SecondsUntil,
    ServerTime,
    SetRefSerializer,
    Time,
    word,
)
from fleet.domain.conditions import When
from fleet.domain.states import OPEN_ORDERS, ApprovalState, EventStatus, OrderState


class OrderSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    machine = MachineRefSerializer()
    state = word(OrderState)
    offered_at = Time()
    expires_at = Time(allow_null=True)
    seconds_left = SecondsUntil("expires_at", states=OPEN_ORDERS, help_text="Until it expires; null once it is closed.")
    delivered_at = Time(allow_null=True)
    delivered_by = serializers.CharField(
        help_text="Which path brought it: `celery`, `beat`, `ticker`, `look` or `report`."
    )
    answered_at = Time(allow_null=True)
    outcome = serializers.CharField(help_text="`answered`, `refused`, `failed`, or empty.")
    azure_status = serializers.IntegerField(allow_null=True, help_text="The HTTP status of Azure's answer.")
    azure_body = serializers.CharField()
    reason = serializers.CharField()


class NextAskedSerializer(serializers.Serializer[Any]):
    machine = MachineRefSerializer()
    at = Time()
    silent = MachineRefSerializer(allow_null=True, help_text="The machine that is waited for until then.")
    sentence = serializers.CharField()


class StepSerializer(serializers.Serializer[Any]):
    # A field of a shape that is named like an attribute of all fields; the metaclass keeps them apart.
    label = serializers.CharField()  # type: ignore[assignment]
    state = serializers.ChoiceField(choices=["done", "now", "overdue", "failed", "ahead"])
    at = Time(allow_null=True)
    detail = serializers.CharField()


class OverriddenSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    sentence = serializers.CharField(help_text="What the guard said.")
    reason = serializers.CharField()


class ApprovalSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    event_id = serializers.CharField()
    event_type = serializers.CharField()
    event_status = word(EventStatus)
    set = SetRefSerializer()
    state = word(ApprovalState)
    by = serializers.CharField(help_text="Who decided.")
    via = serializers.CharField(help_text="Through what: `page`, `api` or `rule`.")
    token_name = serializers.CharField(help_text="The token's name; empty where there was none.")
    comment = serializers.CharField()
    rule = RuleRefSerializer(allow_null=True, help_text="The rule that decided; null where a person did.")
    rule_wording = serializers.CharField(help_text="How the rule was worded then; empty where a person decided.")
    event_version = serializers.IntegerField(help_text="The event's version when it was decided.")
    when = word(When, help_text="When it was to go.")
    due_at = Time(allow_null=True, help_text="The time that was said, with `when` being `time`.")
    overrides = OverriddenSerializer(many=True, help_text="The guards that were overcome, and why.")
    decided_at = Time(help_text="When somebody decided or proposed it.")
    consented_by = serializers.CharField(help_text="The second person; empty where there was none.")
    consented_at = Time(allow_null=True)
    consent_comment = serializers.CharField()
    waits_for = serializers.CharField(
        help_text="What it waits for now, in one sentence; empty once it is on its way or over."
    )
    granted_at = Time(allow_null=True, help_text="When it was to go to Azure; null while it waits.")
    accepted_at = Time(allow_null=True, help_text="When Azure answered 200.")
    accepted_by = MachineRefSerializer(allow_null=True, help_text="The machine that asked Azure.")
    closed_at = Time(allow_null=True)
    inferred = serializers.BooleanField(help_text="Its end was concluded, not answered.")
    reason = serializers.CharField(help_text="One sentence about how it ended.")
    orders = OrderSerializer(many=True, help_text="Oldest first.")
    wave = serializers.IntegerField(allow_null=True, help_text="The id of the wave that it belongs to.")
    turn = serializers.IntegerField(allow_null=True, help_text="Its place in the wave, from 1.")
    next_asked = NextAskedSerializer(
        allow_null=True,
        help_text="Who is asked next and when, if nothing happens until then; in lists it is null.",
    )
    steps = StepSerializer(many=True, help_text="Decided, agreed to, due, sent, answered, started, gone.")
    may_be_withdrawn = serializers.BooleanField()
    server_time = ServerTime()
