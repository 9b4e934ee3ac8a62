"""Database models: columns, constraints, and QuerySets of single tables. Other packages import the models from here."""

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
    Service,
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
from fleet.models.reconcile import LastRun, QuarantinedRow, WrongClock
from fleet.models.timeline import Entry, Seal
