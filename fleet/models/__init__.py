"""Columns, constraints and one-table QuerySets."""

from fleet.models.approvals import Approval, Order
from fleet.models.caches import Cache, Coverage, Maintenance, Notification, Reporter
from fleet.models.claims import Claim, Hold
from fleet.models.documents import DocumentBody, Observation
from fleet.models.drills import Drill, Instruction, Rehearsal
from fleet.models.entries import Entry, Seal
from fleet.models.events import ScheduledEvent, Sighting
from fleet.models.lookups import EqualsAny
from fleet.models.machines import AvailabilitySet, Head, InventoryMachine, JoinToken, Machine, PresenceRow, Spool
from fleet.models.people import ApiToken, LoginAttempts, Profile, Scope, StoredAnswer
from fleet.models.preparations import Preparation
from fleet.models.rules import NoApprovalWindow, Rule
from fleet.models.signing import SigningKey
from fleet.models.sweeps import Sweep
from fleet.models.waves import Wave

__all__ = [
    "ApiToken",
    "Approval",
    "AvailabilitySet",
    "Cache",
    "Claim",
    "Coverage",
    "DocumentBody",
    "Drill",
    "Entry",
    "EqualsAny",
    "Head",
    "Hold",
    "Instruction",
    "InventoryMachine",
    "JoinToken",
    "LoginAttempts",
    "Machine",
    "Maintenance",
    "NoApprovalWindow",
    "Notification",
    "Observation",
    "Order",
    "Preparation",
    "PresenceRow",
    "Profile",
    "Rehearsal",
    "Reporter",
    "Rule",
    "ScheduledEvent",
    "Scope",
    "Seal",
    "Sighting",
    "SigningKey",
    "Spool",
    "StoredAnswer",
    "Sweep",
    "Wave",
]
