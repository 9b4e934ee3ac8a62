"""Columns, constraints and one-table QuerySets."""

from fleet.models.approvals import Approval, Claim, Hold
from fleet.models.archive.files import ArchiveFile, ArchiveState
from fleet.models.blind_spots import OpenTrouble, SetBlindSpot, SetCount, StaleSet
from fleet.models.caches import Cache, Coverage, Maintenance, Notification, Reporter
from fleet.models.clocks import WrongClock
from fleet.models.desk import SavedView
from fleet.models.drills import Drill, Instruction, Rehearsal
from fleet.models.events import ScheduledEvent, Sighting
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
from fleet.models.lookups import EqualsAny
from fleet.models.machines import (
    Admission,
    Entrance,
    InventoryMachine,
    JoinToken,
    Machine,
    Nonce,
    RefusedEnrolment,
    UnusedKey,
)
from fleet.models.messages import (
    Channel,
    Cursor,
    DeliveryAttempt,
    HookCall,
    Message,
    MessageDelivery,
    PushKey,
    Reference,
    Route,
    RouteVersion,
)
from fleet.models.orders import Order, SigningKey
from fleet.models.people import (
    AccountLink,
    ApiToken,
    CalendarFeed,
    FormerName,
    KnownDevice,
    LoginAttempts,
    OutsideAccount,
    Profile,
    Scope,
    StoredAnswer,
)
from fleet.models.policy import NoApprovalWindow, Rule, Stop
from fleet.models.reconcile import LastRun, SetAside
from fleet.models.service_accounts import ServiceAccount
from fleet.models.sessions import PersonSession
from fleet.models.sets import AvailabilitySet
from fleet.models.sign_on import SignOn, SignOnGrant
from fleet.models.timeline import Entry, Seal
from fleet.models.waves import Wave

__all__ = [
    "AccountLink",
    "Admission",
    "ApiToken",
    "Approval",
    "ArchiveFile",
    "ArchiveState",
    "AvailabilitySet",
    "Cache",
    "CalendarFeed",
    "Channel",
    "Claim",
    "Coverage",
    "Cursor",
    "DeliveryAttempt",
    "DocumentBody",
    "Drill",
    "Entrance",
    "Entry",
    "EqualsAny",
    "FormerName",
    "Hold",
    "HookCall",
    "Instruction",
    "InventoryMachine",
    "JoinToken",
    "KnownDevice",
    "LastRun",
    "LatestDocument",
    "LoginAttempts",
    "Machine",
    "Maintenance",
    "Message",
    "MessageDelivery",
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
    "PushKey",
    "Reference",
    "RefusedEnrolment",
    "Rehearsal",
    "Reporter",
    "Route",
    "RouteVersion",
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
