"""How states and kinds are shown: one table for each vocabulary."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.domain.approvals.guards import Need
from fleet.domain.blind_spots.facts import Confidence
from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.desk import Glance, RelayHealth
from fleet.domain.drills import Outcome
from fleet.domain.event_types import Severity
from fleet.domain.intake import Prepared
from fleet.domain.orders.series import Series
from fleet.domain.states import ApprovalState, EndedAs, EventStatus, OrderState, Presence
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import Phase, WaveState
from fleet.projections.caches.coverage import ListenerRow, Stretch
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.drills import DrillRow
from fleet.projections.policy.dry_run import Would
from fleet.projections.timeline.entries import TimelineRow


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: a word, a tone (`calm`, `due`, `busy`, `good`, `bad`, `quiet`) and a lucide icon's name."""

    label: str
    tone: str
    icon: str


EVENT_LOOKS: dict[EventStatus, Look] = {
    EventStatus.SCHEDULED: Look("Scheduled", "due", "calendar-clock"),
    EventStatus.STARTED: Look("Started", "busy", "play"),
    EventStatus.ENDED: Look("Ended", "quiet", "circle-check"),
}
ENDED_AS_LOOKS: dict[EndedAs, Look] = {
    EndedAs.COMPLETED: Look("completed", "good", "circle-check"),
    EndedAs.CANCELLED: Look("cancelled by Azure", "quiet", "ban"),
    EndedAs.CANCELLED_OR_MISSED: Look("cancelled, or missed between two polls", "quiet", "circle-question-mark"),
    EndedAs.MACHINE_DELETED: Look("machine deleted", "bad", "trash-2"),
    EndedAs.UNKNOWN: Look("ending unknown", "quiet", "circle-question-mark"),
}
APPROVAL_LOOKS: dict[ApprovalState, Look] = {
    ApprovalState.PROPOSED: Look("Waits for a second person", "due", "users"),
    ApprovalState.WAITING: Look("Waits for its condition", "due", "hourglass"),
    ApprovalState.GRANTED: Look("Decided", "busy", "gavel"),
    ApprovalState.RELAYING: Look("On its way", "busy", "send"),
    ApprovalState.ACCEPTED: Look("Azure answered 200", "busy", "cloud"),
    ApprovalState.CONFIRMED: Look("Confirmed", "good", "circle-check"),
    ApprovalState.WITHDRAWN: Look("Withdrawn", "quiet", "undo-2"),
    ApprovalState.REFUSED: Look("Refused", "bad", "octagon-x"),
    ApprovalState.LAPSED: Look("Lapsed", "bad", "timer-off"),
    ApprovalState.VOID: Look("Void", "quiet", "minus"),
}
ORDER_LOOKS: dict[OrderState, Look] = {
    OrderState.OFFERED: Look("Offered", "busy", "mail"),
    OrderState.DELIVERED: Look("Delivered", "busy", "mail-check"),
    OrderState.ANSWERED: Look("Answered", "good", "reply"),
    OrderState.SUPERSEDED: Look("Superseded", "quiet", "skip-forward"),
    OrderState.EXPIRED: Look("Expired", "bad", "timer-off"),
    OrderState.CANCELLED: Look("Cancelled", "quiet", "ban"),
}
PRESENCE_LOOKS: dict[Presence, Look] = {
    Presence.LIVE: Look("live", "good", "circle-dot"),
    Presence.LATE: Look("late", "due", "clock-alert"),
    Presence.SILENT: Look("silent", "bad", "circle-off"),
    Presence.GONE: Look("gone", "quiet", "circle-x"),
    Presence.EXPECTED: Look("expected", "calm", "circle-dashed"),
}
OUTCOME_LOOKS: dict[Outcome, Look] = {
    Outcome.COMPLETED: Look("completed", "good", "circle-check"),
    Outcome.NOT_APPROVED: Look("nobody approved it in time", "bad", "timer-off"),
    Outcome.STOPPED: Look("stopped by a person", "quiet", "ban"),
    Outcome.OVERTAKEN: Look("made way for a real event", "due", "triangle-alert"),
    Outcome.NOBODY: Look("no machine took part", "bad", "circle-off"),
    Outcome.UNFINISHED: Look("did not come to its end", "bad", "octagon-x"),
}
RUNNING_LOOK = Look("under way", "busy", "loader-circle")
WAVE_LOOKS: dict[WaveState, Look] = {
    WaveState.RUNNING: Look("Under way", "busy", "waves-horizontal"),
    WaveState.DONE: Look("Done", "good", "circle-check"),
    WaveState.STOPPED: Look("Stopped", "bad", "octagon-x"),
}
PHASE_LOOKS: dict[Phase, Look] = {
    Phase.WAITS: Look("Waits for its turn", "due", "hourglass"),
    Phase.IN_FLIGHT: Look("Under way", "busy", "play"),
    Phase.RETURNING: Look("Not back yet", "due", "rotate-ccw"),
    Phase.BACK: Look("Back", "good", "circle-check"),
    Phase.LEFT_OUT: Look("Left out", "quiet", "minus"),
}
MAINTENANCE_LOOKS: dict[MaintenanceStatus, Look] = {
    MaintenanceStatus.ANNOUNCED: Look("announced", "due", "calendar-clock"),
    MaintenanceStatus.STARTING: Look("starting", "due", "timer"),
    MaintenanceStatus.UNDER_WAY: Look("under way", "busy", "play"),
    MaintenanceStatus.FAILED_OVER: Look("failed over", "busy", "arrow-right-left"),
    MaintenanceStatus.ENDED: Look("ended", "good", "circle-check"),
    MaintenanceStatus.END_NOT_SEEN: Look("end not seen", "quiet", "circle-question-mark"),
    MaintenanceStatus.NEVER_STARTED: Look("announced, never started", "quiet", "minus"),
}
PREPARED_LOOKS: dict[Prepared, Look] = {
    Prepared.UNKNOWN: Look("no word yet", "quiet", "circle-question-mark"),
    Prepared.PREPARING: Look("preparing", "busy", "loader-circle"),
    Prepared.PREPARED: Look("prepared", "good", "circle-check"),
    Prepared.NOTHING: Look("nothing to prepare", "quiet", "circle-minus"),
    Prepared.FAILED: Look("prepare failed", "bad", "octagon-x"),
    Prepared.RECOVERING: Look("recovering", "busy", "loader-circle"),
    Prepared.RECOVERED: Look("recovered", "good", "circle-check"),
    Prepared.RECOVER_FAILED: Look("recover failed", "bad", "octagon-x"),
}
# The agent's word; `silent`: it listened, and the agent is heard no more.
COVERAGE_LOOKS: dict[str, Look] = {
    "subscribed": Look("listening", "good", "ear"),
    "lost": Look("connection lost", "bad", "unplug"),
    "stale": Look("no sign of life", "bad", "ear-off"),
    "refused": Look("refused", "bad", "shield-x"),
    "unsupported": Look("publishes nothing", "quiet", "minus"),
    # Not a word of an agent: the agent itself is not heard.
    "silent": Look("agent silent", "bad", "circle-off"),
}
STEP_LOOKS: dict[str, Look] = {
    "done": Look("done", "good", "circle-check"),
    "now": Look("in progress", "busy", "loader-circle"),
    "overdue": Look("overdue", "bad", "clock-alert"),
    "failed": Look("did not happen", "bad", "circle-x"),
    "ahead": Look("ahead", "quiet", "circle-dashed"),
}
CONFIDENCE_LOOKS: dict[Confidence, Look] = {
    Confidence.CERTAIN: Look("certain", "bad", "circle-alert"),
    Confidence.LIKELY: Look("likely", "due", "triangle-alert"),
    Confidence.POSSIBLE: Look("possible", "calm", "circle-question-mark"),
    Confidence.UNKNOWN: Look("cannot be told from here", "quiet", "circle-dashed"),
}
WOULD_LOOKS: dict[Would, Look] = {
    Would.APPROVE: Look("approve", "good", "gavel"),
    Would.LATER: Look("approve later", "busy", "hourglass"),
    Would.HOLD: Look("leave to Azure", "due", "circle-pause"),
    Would.LEAVE: Look("leave to people", "calm", "users"),
    Would.GUARDED: Look("left by a guard", "due", "shield-alert"),
    Would.EARLIER: Look("an earlier rule", "quiet", "list-ordered"),
}
RELAY_LOOKS: dict[RelayHealth, Look] = {
    RelayHealth.WORKS: Look("works", "good", "radio-tower"),
    RelayHealth.WITHOUT_CELERY: Look("no Celery", "due", "triangle-alert"),
    RelayHealth.STANDS_STILL: Look("stands still", "bad", "octagon-x"),
}
SEVERITY_LOOKS: dict[Severity, Look] = {
    Severity.CRITICAL: Look("critical", "bad", "octagon-alert"),
    Severity.WARNING: Look("warning", "due", "triangle-alert"),
    Severity.INFO: Look("info", "calm", "info"),
}
NEED_LOOKS: dict[Need, Look] = {
    Need.BLOCKS: Look("nobody can override it", "bad", "octagon-x"),
    Need.SECOND: Look("needs a second person", "due", "users"),
    Need.STEP_UP: Look("asks you again who you are", "due", "key-round"),
    Need.REASON: Look("needs a reason", "due", "triangle-alert"),
    Need.NOTE: Look("for your information", "quiet", "info"),
}
# How a set or a cache stands on the map; each has a shape of its own there.
GLANCE_LOOKS: dict[Glance, Look] = {
    Glance.DECIDE: Look("needs a decision", "due", "triangle-alert"),
    Glance.UNWATCHED: Look("nobody watches", "bad", "eye-off"),
    Glance.STARTED: Look("under way", "busy", "play"),
    Glance.SCHEDULED: Look("announced", "busy", "calendar-clock"),
    Glance.PARTLY: Look("partly watched", "due", "circle-off"),
    Glance.LATE: Look("late", "due", "clock-alert"),
    Glance.LIVE: Look("all live", "good", "circle-dot"),
    Glance.EMPTY: Look("no machines", "quiet", "circle-dashed"),
}
ENTRY_LOOKS: dict[EntryKind, Look] = {
    EntryKind.EVENT_SEEN: Look("Announced", "due", "calendar-clock"),
    EntryKind.EVENT_SIGHTED: Look("Seen", "quiet", "eye"),
    EntryKind.EVENT_CHANGED: Look("Changed", "due", "pencil"),
    EntryKind.EVENT_STARTED: Look("Started", "busy", "play"),
    EntryKind.EVENT_ENDED: Look("Ended", "good", "circle-check"),
    EntryKind.EVENT_REOPENED: Look("Reopened", "due", "rotate-ccw"),
    EntryKind.EVENT_UNWATCHED: Look("Unwatched", "bad", "eye-off"),
    EntryKind.EVENT_WATCHED: Look("Watched again", "quiet", "eye"),
    EntryKind.FOREIGN_SIGHTING: Look("Foreign sighting", "bad", "triangle-alert"),
    EntryKind.DOCUMENT_UNREADABLE: Look("Unreadable document", "bad", "file-question-mark"),
    EntryKind.QUARANTINED: Look("Quarantined reports", "bad", "shield-alert"),
    EntryKind.REPORT_UNKNOWN: Look("Unknown report", "due", "file-question-mark"),
    EntryKind.REPORT_REFUSED: Look("Refused report", "bad", "file-x"),
    EntryKind.ROWS_ARCHIVED: Look("Left for the archive", "quiet", "archive"),
    EntryKind.ERA_BEGUN: Look("Era begun", "due", "rotate-ccw"),
    EntryKind.REPORTS_LOST: Look("Lost reports", "bad", "file-question-mark"),
    EntryKind.SPOOL_REUSED: Look("Older state folder", "due", "history"),
    EntryKind.EVENT_CLAIMED: Look("Claimed", "calm", "hand"),
    EntryKind.CLAIM_ENDED: Look("Given back", "quiet", "undo-2"),
    EntryKind.EVENT_HELD: Look("Left to Azure", "due", "circle-pause"),
    EntryKind.HOLD_ENDED: Look("Taken back", "quiet", "circle-play"),
    EntryKind.APPROVAL_PROPOSED: Look("Proposed", "due", "users"),
    EntryKind.APPROVAL_CONSENTED: Look("Second person agreed", "busy", "user-check"),
    EntryKind.APPROVAL_PLANNED: Look("Approved, waits", "busy", "hourglass"),
    EntryKind.APPROVAL_GRANTED: Look("Approved", "busy", "gavel"),
    EntryKind.APPROVAL_DUE: Look("Condition met", "busy", "gavel"),
    EntryKind.APPROVAL_ACCEPTED: Look("Azure accepted", "busy", "cloud"),
    EntryKind.APPROVAL_CORRECTED: Look("Approval corrected", "busy", "cloud"),
    EntryKind.APPROVAL_CONFIRMED: Look("Approval confirmed", "good", "circle-check"),
    EntryKind.APPROVAL_WITHDRAWN: Look("Approval withdrawn", "quiet", "undo-2"),
    EntryKind.APPROVAL_REFUSED: Look("Approval refused", "bad", "octagon-x"),
    EntryKind.APPROVAL_LAPSED: Look("Approval lapsed", "bad", "timer-off"),
    EntryKind.APPROVAL_VOID: Look("Approval void", "quiet", "circle-slash"),
    EntryKind.ORDER_OFFERED: Look("Order offered", "busy", "mail"),
    EntryKind.ORDER_DELIVERED: Look("Order delivered", "busy", "mail-check"),
    EntryKind.ORDER_ANSWERED: Look("Order answered", "busy", "reply"),
    EntryKind.ORDER_SUPERSEDED: Look("Order superseded", "quiet", "skip-forward"),
    EntryKind.ORDER_EXPIRED: Look("Order expired", "bad", "timer-off"),
    EntryKind.ORDER_CANCELLED: Look("Order cancelled", "quiet", "ban"),
    EntryKind.LATE_RECEIPT: Look("Late receipt", "quiet", "history"),
    EntryKind.HOOK_SUCCEEDED: Look("Hook succeeded", "good", "terminal"),
    EntryKind.HOOK_FAILED: Look("Hook failed", "bad", "terminal"),
    EntryKind.HOOK_LATE: Look("Prepares late", "due", "clock-alert"),
    EntryKind.HOOKS_BEGAN: Look("Hooks began", "busy", "loader-circle"),
    EntryKind.HOOKS_ENDED: Look("Hooks ended", "quiet", "terminal"),
    EntryKind.WAVE_BEGAN: Look("Wave began", "busy", "waves-horizontal"),
    EntryKind.WAVE_ENDED: Look("Wave done", "good", "waves-horizontal"),
    EntryKind.WAVE_STOPPED: Look("Wave stopped", "bad", "octagon-x"),
    EntryKind.DRILL_BEGAN: Look("Drill began", "busy", "siren"),
    EntryKind.DRILL_STEP: Look("Drill", "calm", "siren"),
    EntryKind.DRILL_ENDED: Look("Drill ended", "good", "siren"),
    EntryKind.MACHINE_ENROLLED: Look("Enrolled", "calm", "server"),
    EntryKind.MACHINE_ENROLLED_AGAIN: Look("Enrolled again", "due", "server"),
    EntryKind.MACHINE_CHANGED: Look("Machine changed", "calm", "server-cog"),
    EntryKind.MACHINE_IDENTIFIED: Look("Machine identified", "calm", "server-cog"),
    EntryKind.MACHINE_REVOKED: Look("Revoked", "bad", "server-off"),
    EntryKind.MACHINE_WAITS: Look("Waits for admission", "due", "hourglass"),
    EntryKind.MACHINE_ADMITTED: Look("Admitted", "calm", "user-check"),
    EntryKind.ADMISSION_REFUSED: Look("Admission refused", "bad", "shield-x"),
    EntryKind.NAME_HELD: Look("Name held", "due", "triangle-alert"),
    EntryKind.NAME_GIVEN: Look("Name given", "calm", "server-cog"),
    EntryKind.MACHINE_MOVED: Look("Moved to another set", "calm", "arrow-right-left"),
    EntryKind.SET_MERGED: Look("Sets joined", "calm", "merge"),
    EntryKind.SET_NAMED: Look("Set named", "calm", "tag"),
    EntryKind.SET_CHANGED: Look("Set's settings changed", "calm", "settings-2"),
    EntryKind.SET_LOWERED: Look("Requirement lowered", "due", "shield-alert"),
    EntryKind.SET_DISPUTED: Look("Set unclear", "due", "triangle-alert"),
    EntryKind.SET_AGREED: Look("Set clear again", "quiet", "circle-check"),
    EntryKind.INVENTORY_IMPORTED: Look("Inventory imported", "calm", "clipboard-list"),
    EntryKind.MAINTENANCE_SCHEDULED: Look("Cache maintenance announced", "due", "calendar-clock"),
    EntryKind.MAINTENANCE_STARTING: Look("Cache maintenance starting", "due", "timer"),
    EntryKind.MAINTENANCE_STARTED: Look("Cache maintenance started", "busy", "database-zap"),
    EntryKind.MAINTENANCE_FAILED_OVER: Look("Cache failed over", "busy", "arrow-right-left"),
    EntryKind.MAINTENANCE_ENDED: Look("Cache maintenance ended", "good", "circle-check"),
    EntryKind.MAINTENANCE_SCALED: Look("Cache scaled", "calm", "scaling"),
    EntryKind.MAINTENANCE_END_NOT_SEEN: Look("End not seen", "due", "circle-question-mark"),
    EntryKind.MAINTENANCE_NEVER_STARTED: Look("Never started", "quiet", "circle-slash"),
    EntryKind.NOTIFICATION_UNKNOWN: Look("Unknown notification", "due", "file-question-mark"),
    EntryKind.CACHE_LISTENED: Look("Listening", "quiet", "ear"),
    EntryKind.CACHE_LOST: Look("Not listening", "due", "ear-off"),
    EntryKind.CACHE_LOST_UNANNOUNCED: Look("Connection lost unannounced", "bad", "unplug"),
    EntryKind.CACHE_REFUSED: Look("Login refused", "bad", "shield-x"),
    EntryKind.CACHE_UNSUPPORTED: Look("Publishes nothing", "due", "ear-off"),
    EntryKind.RULE_CREATED: Look("Rule made", "calm", "scale"),
    EntryKind.RULE_CHANGED: Look("Rule changed", "calm", "scale"),
    EntryKind.RULE_DELETED: Look("Rule deleted", "calm", "scale"),
    EntryKind.WINDOW_CREATED: Look("No-approval window made", "calm", "calendar-off"),
    EntryKind.WINDOW_DELETED: Look("No-approval window deleted", "calm", "calendar-off"),
    EntryKind.APPROVALS_STOPPED: Look("All approvals stopped", "bad", "octagon-x"),
    EntryKind.STOP_LIFTED: Look("Stop lifted", "due", "circle-play"),
    EntryKind.PERSON_CHANGED: Look("Person changed", "calm", "user-cog"),
    EntryKind.MAPPING_CHANGED: Look("Mapping changed", "calm", "key-round"),
    EntryKind.BREAK_GLASS_USED: Look("Break-glass account used", "bad", "siren"),
    EntryKind.PERSON_FORGOTTEN: Look("Person forgotten", "calm", "user-cog"),
    EntryKind.SIGNING_KEY_MADE: Look("Signing key made", "calm", "file-key"),
    EntryKind.SIGNING_KEY_RETIRED: Look("Signing key retired", "calm", "file-key"),
    EntryKind.HANDOVER_READ: Look("Took over", "calm", "book-open-check"),
    EntryKind.VIEW_SAVED: Look("View saved", "quiet", "bookmark"),
    EntryKind.VIEW_DELETED: Look("View deleted", "quiet", "bookmark-x"),
    EntryKind.CHANNEL_FAILING: Look("Channel fails", "bad", "bell-off"),
    EntryKind.CHANNEL_WORKS: Look("Channel works again", "good", "bell-ring"),
    EntryKind.SOURCE_QUIET: Look("Source went quiet", "due", "circle-off"),
    EntryKind.SET_UNWATCHED: Look("Set is not watched", "bad", "eye-off"),
    EntryKind.COVERAGE_OPENED: Look("Blind spot", "due", "eye-off"),
    EntryKind.COVERAGE_CLOSED: Look("Blind spot is gone", "good", "eye"),
    EntryKind.AUDIT_FAILED: Look("Audit does not verify", "bad", "shield-x"),
    EntryKind.STORAGE_TROUBLE: Look("Trouble with storage", "bad", "database-zap"),
    EntryKind.CHANNEL_CREATED: Look("Channel made", "calm", "megaphone"),
    EntryKind.CHANNEL_CHANGED: Look("Channel changed", "calm", "megaphone"),
    EntryKind.CHANNEL_DELETED: Look("Channel deleted", "calm", "megaphone-off"),
    EntryKind.CHANNEL_TRIED: Look("Channel tried", "quiet", "send"),
    EntryKind.ROUTE_CREATED: Look("Route made", "calm", "split"),
    EntryKind.ROUTE_CHANGED: Look("Route changed", "calm", "split"),
    EntryKind.ROUTE_DELETED: Look("Route deleted", "calm", "split"),
    EntryKind.MESSAGE_SENT_AGAIN: Look("Message sent again", "calm", "send"),
    EntryKind.TOKEN_CREATED: Look("Token made", "calm", "key-round"),
    EntryKind.TOKEN_EXPIRES: Look("Token expires soon", "due", "key-round"),
    EntryKind.TOKEN_ENDED: Look("Token ended", "calm", "key-round"),
    EntryKind.CALENDAR_MADE: Look("Calendar made", "calm", "calendar"),
    EntryKind.CALENDAR_ENDED: Look("Calendar ended", "calm", "calendar"),
    EntryKind.PUSH_KEY_MADE: Look("Push key made", "calm", "file-key"),
    EntryKind.ENTRANCE_CHANGED: Look("Enrolment policy changed", "calm", "key-round"),
    EntryKind.JOIN_TOKEN_ENDED: Look("Join token ended", "calm", "key-round"),
    EntryKind.LOGINS_REFUSED: Look("Password guessed at", "due", "shield-alert"),
    EntryKind.NEW_DEVICE: Look("New device", "due", "monitor-smartphone"),
}
# Entries that stand in one line, by what that says.
SERIES_LOOKS: dict[str, Look] = {
    "azure-was-busy": Look("Azure was busy", "due", "rotate-ccw"),
    "listeners-cut-off": Look("Not listening", "due", "ear-off"),
    "listeners-came": Look("Listening", "quiet", "ear"),
    "machines-came": Look("Enrolled", "calm", "server"),
}
# An entry that another release has written.
OTHER_LOOK = Look("Of another release", "quiet", "circle-question-mark")

# Annexes add those of their own states.
BY_KIND: dict[type, Mapping[Any, Look]] = {
    EventStatus: EVENT_LOOKS,
    EndedAs: ENDED_AS_LOOKS,
    ApprovalState: APPROVAL_LOOKS,
    OrderState: ORDER_LOOKS,
    Presence: PRESENCE_LOOKS,
    Outcome: OUTCOME_LOOKS,
    WaveState: WAVE_LOOKS,
    Phase: PHASE_LOOKS,
    MaintenanceStatus: MAINTENANCE_LOOKS,
    Prepared: PREPARED_LOOKS,
    Confidence: CONFIDENCE_LOOKS,
    Would: WOULD_LOOKS,
    EntryKind: ENTRY_LOOKS,
    Need: NEED_LOOKS,
    Severity: SEVERITY_LOOKS,
    RelayHealth: RELAY_LOOKS,
    Glance: GLANCE_LOOKS,
}


def state_of(shown: Any) -> str:
    """The state itself, as programs name it."""
    match shown:
        case DrillRow():
            return shown.outcome.value if shown.outcome else "running"
        case ListenerRow() | Stretch():
            return str(shown.state)
        case MaintenanceRow():
            return str(shown.status)
    return str(shown)


def look_of(shown: Any) -> Look:
    """How a state, a kind, or a row that has one, is shown."""
    match shown:
        case TimelineRow():
            look = ENTRY_LOOKS.get(shown.kind, OTHER_LOOK)
            # Azure knows nothing of a drill.
            if shown.drill and "Azure" in look.label:
                return replace(look, label=look.label.removeprefix("Azure ").capitalize())
            return look
        case Series():
            return SERIES_LOOKS[shown.text.code]
        case DrillRow():
            return OUTCOME_LOOKS[shown.outcome] if shown.outcome else RUNNING_LOOK
        case ListenerRow() | Stretch():
            return COVERAGE_LOOKS[shown.state]
        case MaintenanceRow():
            return MAINTENANCE_LOOKS[shown.status]
    return BY_KIND[type(shown)][shown]
