"""Columns, constraints and one-table QuerySets."""

from fleet.models.approvals import Approval, Claim, Hold, Order, SigningKey, Wave
from fleet.models.blind_spots import OpenTrouble, SetBlindSpot, SetCount, StaleSet
from fleet.models.caches import Cache, Coverage, Maintenance, Notification, Reporter
from fleet.models.drills import Drill, Instruction, Rehearsal
from fleet.models.events import ScheduledEvent, Sighting
from fleet.models.index_scan import EqualsAny
from fleet.models.intake import (
    DocumentBody,
    LatestDocument,
    Observation,
    PollGap,
    Preparation,
    PresenceRow,
    Spool,
    WaitingReport,
)
from fleet.models.machines import (
    Admission,
    AvailabilitySet,
    Entrance,
    InventoryMachine,
    JoinToken,
    Machine,
    Nonce,
    RefusedEnrolment,
    UnusedKey,
)
from fleet.models.people import (
    AccountLink,
    ApiToken,
    CalendarFeed,
    FormerName,
    KnownDevice,
    LoginAttempts,
    OutsideAccount,
    Profile,
    SavedView,
    Scope,
    ServiceAccount,
    StoredAnswer,
)
from fleet.models.policy import NoApprovalWindow, Rule, Stop
from fleet.models.reconcile import LastRun, SetAside, WrongClock
from fleet.models.sessions import PersonSession
from fleet.models.sign_on import SignOn, SignOnGrant
from fleet.models.timeline import Entry, Seal

__all__ = [
    "AccountLink",
    "Admission",
    "ApiToken",
    "Approval",
    "AvailabilitySet",
    "Cache",
    "CalendarFeed",
    "Claim",
    "Coverage",
    "DocumentBody",
    "Drill",
    "Entrance",
    "Entry",
    "EqualsAny",
    "FormerName",
    "Hold",
    "Instruction",
    "InventoryMachine",
    "JoinToken",
    "KnownDevice",
    "LastRun",
    "LatestDocument",
    "LoginAttempts",
    "Machine",
    "Maintenance",
    "NoApprovalWindow",
    "Nonce",
    "Notification",
    "Observation",
    "OpenTrouble",
    "Order",
    "OutsideAccount",
    "PersonSession",
    "PollGap",
    "Preparation",
    "PresenceRow",
    "Profile",
    "RefusedEnrolment",
    "Rehearsal",
    "Reporter",
    "Rule",
    "SavedView",
    "ScheduledEvent",
    "Scope",
    "Seal",
    "ServiceAccount",
    "SetAside",
    "SetBlindSpot",
    "SetCount",
    "Sighting",
    "SignOn",
    "SignOnGrant",
    "SigningKey",
    "Spool",
    "StaleSet",
    "Stop",
    "StoredAnswer",
    "UnusedKey",
    "WaitingReport",
    "Wave",
    "WrongClock",
]
