"""Columns, constraints and one-table QuerySets."""

from fleet.models.approvals import Approval, Order
from fleet.models.caches import Cache, Coverage, Maintenance, Notification, Reporter
from fleet.models.documents import DocumentBody, Observation
from fleet.models.entries import Entry
from fleet.models.events import ScheduledEvent, Sighting
from fleet.models.lookups import EqualsAny
from fleet.models.machines import AvailabilitySet, Head, InventoryMachine, JoinToken, Machine, PresenceRow, Spool
from fleet.models.people import ApiToken, StoredAnswer
from fleet.models.preparations import Preparation
from fleet.models.sweeps import Sweep

__all__ = [
    "ApiToken",
    "Approval",
    "AvailabilitySet",
    "Cache",
    "Coverage",
    "DocumentBody",
    "Entry",
    "EqualsAny",
    "Head",
    "InventoryMachine",
    "JoinToken",
    "Machine",
    "Maintenance",
    "Notification",
    "Observation",
    "Order",
    "Preparation",
    "PresenceRow",
    "Reporter",
    "ScheduledEvent",
    "Sighting",
    "Spool",
    "StoredAnswer",
    "Sweep",
]
