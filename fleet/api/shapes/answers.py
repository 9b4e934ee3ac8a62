"""Shapes of responses that need fields beyond those of their dataclass, in the order in which they depend on each
other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from fleet.api.shapes.derive import ServerTime, shape
from fleet.domain.blind_spots import ORDER
from fleet.domain.orders.series import SignatureCheck
from fleet.domain.sets import KINDS, SetSource
from fleet.domain.states import OPEN_ORDERS, EventStatus
from fleet.operations.policy.rules import RuleRequestSerializer, WindowRequestSerializer
from fleet.projections.approvals import ApprovalRow, OrderRow
from fleet.projections.blind_spots import BlindSpotRow
from fleet.projections.caches.coverage import ListenerRow
from fleet.projections.caches.maintenances import MaintenanceDetail, MaintenanceRow, NotificationRow
from fleet.projections.caches.overview import CacheRow
from fleet.projections.drills import MachineReport
from fleet.projections.events.detail import EventDetail
from fleet.projections.events.rows import ClaimRow, ClaimTold, HoldRow, HoldTold
from fleet.projections.intake import RawDocument
from fleet.projections.machines import JoinTokenRow, MachineRow, OpenEventBrief
from fleet.projections.policy import rules
from fleet.projections.refs import SetRef
from fleet.projections.sets import SetRow
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.badges import COVERAGE_BADGES
from fleet.wording.events import effect_of
from fleet.wording.say import text_of
from fleet.wording.times import API


@extend_schema_field({"type": ["number", "null"], "minimum": 0})
class SecondsUntil(serializers.Field[float, Any, float | None, Any]):
    """Field with the seconds until a time of the row, never below 0; null if that time does not apply."""

    def __init__(self, until: str, *, states: Iterable[str] = (), help_text: str, source: str = "*") -> None:
        self.until, self.states = until, frozenset(states)
        super().__init__(source=source, read_only=True, help_text=help_text)

    def to_representation(self, value: Any) -> float | None:
        until: datetime | None = getattr(value, self.until)
        state = getattr(value, "state", None) or getattr(value, "status", None)
        if until is None or (self.states and str(state) not in self.states):
            return None
        now: datetime = self.context["now"]
        return round(max(0.0, (until - now).total_seconds()), 3)


shape(SetRef, kind=serializers.ChoiceField(KINDS))
shape(
    OrderRow,
    seconds_left=SecondsUntil("expires_at", states=OPEN_ORDERS, help_text="Until it expires; null once it is closed."),
)
ApprovalShape = shape(ApprovalRow)
shape(ClaimRow, name="ClaimRef")
shape(HoldRow, name="HoldRef")
ClaimShape = shape(ClaimTold, name="Claim")
shape(HoldTold, name="Hold")


class BulkItem(serializers.Serializer[object]):
    event_id = serializers.CharField()
    status = serializers.IntegerField(help_text="201, or the status of `problem`.")
    problem = serializers.DictField(allow_null=True, help_text="The problem document of a refusal.")


class BulkApprovalItem(BulkItem):
    approval = ApprovalShape(allow_null=True)


class BulkClaimItem(BulkItem):
    claim = ClaimShape(allow_null=True)


class BulkApprovals(serializers.Serializer[object]):
    done = serializers.IntegerField(help_text="How many were approved or proposed.")
    refused = serializers.IntegerField()
    results = BulkApprovalItem(many=True, help_text="One of each event, in the order asked for.")


class BulkClaims(serializers.Serializer[object]):
    done = serializers.IntegerField(help_text="How many were claimed.")
    refused = serializers.IntegerField()
    results = BulkClaimItem(many=True, help_text="One of each event, in the order asked for.")


class DecommissionItem(serializers.Serializer[object]):
    machine = serializers.IntegerField()
    problem = serializers.DictField(allow_null=True, help_text="The problem document of a refusal.")


class Decommissions(serializers.Serializer[object]):
    done = serializers.IntegerField(help_text="How many were decommissioned.")
    refused = serializers.IntegerField()
    results = DecommissionItem(many=True, help_text="One of each machine, in the order asked for.")


shape(
    ListenerRow,
    name="Coverage",
    state=serializers.ChoiceField(
        list(COVERAGE_BADGES), help_text="The agent's word; `silent`: it listened, and the agent itself is not heard."
    ),
)
shape(MaintenanceRow, name="MaintenanceBrief", server_time=ServerTime())
MEMBERS = shape(NotificationRow)(many=True, source="members", help_text="Its members, oldest first.")
shape(MaintenanceDetail, notifications=MEMBERS)
# A list has fewer fields: the listeners at that time are loaded for one maintenance only.
MaintenanceShape = shape(MaintenanceDetail, name="Maintenance", without=("unheard",), notifications=MEMBERS)
shape(CacheRow, server_time=ServerTime())


# Blind spots, and results of an import.

shape(BlindSpotRow, code=serializers.ChoiceField(ORDER))


# Sets, machines and join tokens.

shape(
    OpenEventBrief,
    name="OpenEvent",
    seconds_left=SecondsUntil(
        "not_before", states=[EventStatus.SCHEDULED], help_text="Until NotBefore; null once it has started."
    ),
)
shape(
    MachineRow,
    signatures=serializers.ChoiceField(
        [check.value for check in SignatureCheck],
        allow_blank=True,
        help_text="How its agent treats signatures of orders; empty until it is reported.",
    ),
    set_source=serializers.ChoiceField(
        [source.value for source in SetSource],
        allow_blank=True,
        help_text="The source whose statement about the set applies; empty if no source states a set.",
    ),
)
shape(SetRow, kind=serializers.ChoiceField(KINDS), server_time=ServerTime())


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A new token for agents; `token` is the secret itself."""

    token: Annotated[str, "Shown this once."]
    prefix: Annotated[str, "The public part of the token."]
    comment: str
    set: Annotated[str, "As `kind:name`: the only one of machines that enrol by it; empty if it names none."]
    created_at: datetime
    expires_at: datetime


shape(
    JoinToken,
    seconds_left=SecondsUntil("expires_at", help_text="Until it admits no agent any more."),
    server_time=ServerTime(),
)
shape(JoinTokenRow, name="KnownJoinToken")
shape(MachineReport, name="DrillMachine")


# Scheduled events, their timeline and their documents.


class TypeText(serializers.CharField):
    """Field with a fact about the event's type, as far as it applies to this event."""

    def __init__(self, known: str, **kwargs: Any) -> None:
        super().__init__(source="event", **kwargs)
        self.known = known

    def to_representation(self, event: Any) -> Any:
        return getattr(effect_of(event), self.known)


class TypeNumber(TypeText, serializers.IntegerField):
    """Field with a number from the event's type, as far as it applies to this event."""


shape(
    EventDetail,
    effect=TypeText("effect", help_text="What it does to a machine, or that it did nothing."),
    lost=TypeText("lost", help_text="What does not come back; may be empty."),
    documented_notice_seconds=TypeNumber("documented_notice_seconds", allow_null=True),
)


class EntryText(serializers.CharField):
    """Field with the text of a timeline entry, with times in UTC."""

    def to_representation(self, row: Any) -> str:
        return text_of(row, API)


shape(TimelineRow, name="Entry", text=EntryText(source="*", read_only=True))
DocumentShape = shape(RawDocument, name="Document")


class Documents(serializers.Serializer[Any]):
    """A page of documents, and the number of machines that all pages omit."""

    next = serializers.URLField(allow_null=True, help_text="The address of the next page.")
    previous = serializers.URLField(allow_null=True, help_text="The address of the page before.")
    results = DocumentShape(many=True)
    left_out = serializers.IntegerField(help_text="Machines whose documents are not looked at, where there are many.")


shape(
    rules.RuleRow,
    without=("rule_id", "deleted"),
    inputs=RuleRequestSerializer,
    seconds_left=SecondsUntil("expires_at", help_text="Until it expires; null when it never does."),
)
shape(rules.WindowRow, name="NoApprovalWindow", inputs=WindowRequestSerializer)
