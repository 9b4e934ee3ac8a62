"""How states and kinds are shown: one table for each vocabulary."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.domain.approvals.guards import Need
from fleet.domain.blind_spots.facts import Confidence
from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.desk import RelayHealth, WorstState
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
class Badge:
    """How a state is shown: a word, a tone (`calm`, `due`, `busy`, `good`, `bad`, `quiet`) and a lucide icon's name."""

    label: str
    tone: str
    icon: str


EVENT_BADGES: dict[EventStatus, Badge] = {
    EventStatus.SCHEDULED: Badge("Scheduled", "due", "calendar-clock"),
    EventStatus.STARTED: Badge("Started", "busy", "play"),
    EventStatus.ENDED: Badge("Ended", "quiet", "circle-check"),
}
ENDED_AS_BADGES: dict[EndedAs, Badge] = {
    EndedAs.COMPLETED: Badge("completed", "good", "circle-check"),
    EndedAs.CANCELLED: Badge("cancelled by Azure", "quiet", "ban"),
    EndedAs.CANCELLED_OR_MISSED: Badge("cancelled, or missed between two polls", "quiet", "circle-question-mark"),
    EndedAs.MACHINE_DELETED: Badge("machine deleted", "bad", "trash-2"),
    EndedAs.UNKNOWN: Badge("ending unknown", "quiet", "circle-question-mark"),
}
APPROVAL_BADGES: dict[ApprovalState, Badge] = {
    ApprovalState.PROPOSED: Badge("Waits for a second person", "due", "users"),
    ApprovalState.WAITING: Badge("Waits for its condition", "due", "hourglass"),
    ApprovalState.GRANTED: Badge("Decided", "busy", "gavel"),
    ApprovalState.RELAYING: Badge("On its way", "busy", "send"),
    ApprovalState.ACCEPTED: Badge("Azure answered 200", "busy", "cloud"),
    ApprovalState.CONFIRMED: Badge("Confirmed", "good", "circle-check"),
    ApprovalState.WITHDRAWN: Badge("Withdrawn", "quiet", "undo-2"),
    ApprovalState.REFUSED: Badge("Refused", "bad", "octagon-x"),
    ApprovalState.LAPSED: Badge("Lapsed", "bad", "timer-off"),
    ApprovalState.VOID: Badge("Void", "quiet", "minus"),
}
ORDER_BADGES: dict[OrderState, Badge] = {
    OrderState.OFFERED: Badge("Offered", "busy", "mail"),
    OrderState.DELIVERED: Badge("Delivered", "busy", "mail-check"),
    OrderState.ANSWERED: Badge("Answered", "good", "reply"),
    OrderState.SUPERSEDED: Badge("Superseded", "quiet", "skip-forward"),
    OrderState.EXPIRED: Badge("Expired", "bad", "timer-off"),
    OrderState.CANCELLED: Badge("Cancelled", "quiet", "ban"),
}
PRESENCE_BADGES: dict[Presence, Badge] = {
    Presence.LIVE: Badge("live", "good", "circle-dot"),
    Presence.LATE: Badge("late", "due", "clock-alert"),
    Presence.SILENT: Badge("silent", "bad", "circle-off"),
    Presence.GONE: Badge("gone", "quiet", "circle-x"),
    Presence.EXPECTED: Badge("expected", "calm", "circle-dashed"),
}
OUTCOME_BADGES: dict[Outcome, Badge] = {
    Outcome.COMPLETED: Badge("completed", "good", "circle-check"),
    Outcome.NOT_APPROVED: Badge("nobody approved it in time", "bad", "timer-off"),
    Outcome.STOPPED: Badge("stopped by a person", "quiet", "ban"),
    Outcome.OVERTAKEN: Badge("made way for a real event", "due", "triangle-alert"),
    Outcome.NOBODY: Badge("no machine took part", "bad", "circle-off"),
    Outcome.UNFINISHED: Badge("did not come to its end", "bad", "octagon-x"),
}
RUNNING_BADGE = Badge("under way", "busy", "loader-circle")
WAVE_BADGES: dict[WaveState, Badge] = {
    WaveState.RUNNING: Badge("Under way", "busy", "waves-horizontal"),
    WaveState.DONE: Badge("Done", "good", "circle-check"),
    WaveState.STOPPED: Badge("Stopped", "bad", "octagon-x"),
}
PHASE_BADGES: dict[Phase, Badge] = {
    Phase.WAITS: Badge("Waits for its turn", "due", "hourglass"),
    Phase.IN_FLIGHT: Badge("Under way", "busy", "play"),
    Phase.RETURNING: Badge("Not back yet", "due", "rotate-ccw"),
    Phase.BACK: Badge("Back", "good", "circle-check"),
    Phase.LEFT_OUT: Badge("Left out", "quiet", "minus"),
}
MAINTENANCE_BADGES: dict[MaintenanceStatus, Badge] = {
    MaintenanceStatus.ANNOUNCED: Badge("announced", "due", "calendar-clock"),
    MaintenanceStatus.STARTING: Badge("starting", "due", "timer"),
    MaintenanceStatus.UNDER_WAY: Badge("under way", "busy", "play"),
    MaintenanceStatus.FAILED_OVER: Badge("failed over", "busy", "arrow-right-left"),
    MaintenanceStatus.ENDED: Badge("ended", "good", "circle-check"),
    MaintenanceStatus.END_NOT_SEEN: Badge("end not seen", "quiet", "circle-question-mark"),
    MaintenanceStatus.NEVER_STARTED: Badge("announced, never started", "quiet", "minus"),
}
PREPARED_BADGES: dict[Prepared, Badge] = {
    Prepared.UNKNOWN: Badge("no word yet", "quiet", "circle-question-mark"),
    Prepared.PREPARING: Badge("preparing", "busy", "loader-circle"),
    Prepared.PREPARED: Badge("prepared", "good", "circle-check"),
    Prepared.NOTHING: Badge("nothing to prepare", "quiet", "circle-minus"),
    Prepared.FAILED: Badge("prepare failed", "bad", "octagon-x"),
    Prepared.RECOVERING: Badge("recovering", "busy", "loader-circle"),
    Prepared.RECOVERED: Badge("recovered", "good", "circle-check"),
    Prepared.RECOVER_FAILED: Badge("recover failed", "bad", "octagon-x"),
}
# The agent's word; `silent`: it listened, and the agent is heard no more.
COVERAGE_BADGES: dict[str, Badge] = {
    "subscribed": Badge("listening", "good", "ear"),
    "lost": Badge("connection lost", "bad", "unplug"),
    "stale": Badge("no sign of life", "bad", "ear-off"),
    "refused": Badge("refused", "bad", "shield-x"),
    "unsupported": Badge("publishes nothing", "quiet", "minus"),
    # Not a word of an agent: the agent itself is not heard.
    "silent": Badge("agent silent", "bad", "circle-off"),
}
STEP_BADGES: dict[str, Badge] = {
    "done": Badge("done", "good", "circle-check"),
    "now": Badge("in progress", "busy", "loader-circle"),
    "overdue": Badge("overdue", "bad", "clock-alert"),
    "failed": Badge("did not happen", "bad", "circle-x"),
    "ahead": Badge("ahead", "quiet", "circle-dashed"),
}
CONFIDENCE_BADGES: dict[Confidence, Badge] = {
    Confidence.CERTAIN: Badge("certain", "bad", "circle-alert"),
    Confidence.LIKELY: Badge("likely", "due", "triangle-alert"),
    Confidence.POSSIBLE: Badge("possible", "calm", "circle-question-mark"),
    Confidence.UNKNOWN: Badge("cannot be told from here", "quiet", "circle-dashed"),
}
WOULD_BADGES: dict[Would, Badge] = {
    Would.APPROVE: Badge("approve", "good", "gavel"),
    Would.LATER: Badge("approve later", "busy", "hourglass"),
    Would.HOLD: Badge("leave to Azure", "due", "circle-pause"),
    Would.LEAVE: Badge("leave to people", "calm", "users"),
    Would.GUARDED: Badge("left by a guard", "due", "shield-alert"),
    Would.EARLIER: Badge("an earlier rule", "quiet", "list-ordered"),
}
RELAY_BADGES: dict[RelayHealth, Badge] = {
    RelayHealth.WORKS: Badge("works", "good", "radio-tower"),
    RelayHealth.WITHOUT_CELERY: Badge("no Celery", "due", "triangle-alert"),
    RelayHealth.STANDS_STILL: Badge("stands still", "bad", "octagon-x"),
}
SEVERITY_BADGES: dict[Severity, Badge] = {
    Severity.CRITICAL: Badge("critical", "bad", "octagon-alert"),
    Severity.WARNING: Badge("warning", "due", "triangle-alert"),
    Severity.INFO: Badge("info", "calm", "info"),
}
NEED_BADGES: dict[Need, Badge] = {
    Need.BLOCKS: Badge("nobody can override it", "bad", "octagon-x"),
    Need.SECOND: Badge("needs a second person", "due", "users"),
    Need.STEP_UP: Badge("asks you again who you are", "due", "key-round"),
    Need.REASON: Badge("needs a reason", "due", "triangle-alert"),
    Need.NOTE: Badge("for your information", "quiet", "info"),
}
# How a set or a cache stands on the map; each has a shape of its own there.
GLANCE_BADGES: dict[WorstState, Badge] = {
    WorstState.DECIDE: Badge("needs a decision", "due", "triangle-alert"),
    WorstState.UNWATCHED: Badge("nobody watches", "bad", "eye-off"),
    WorstState.STARTED: Badge("under way", "busy", "play"),
    WorstState.SCHEDULED: Badge("announced", "busy", "calendar-clock"),
    WorstState.PARTLY: Badge("partly watched", "due", "circle-off"),
    WorstState.LATE: Badge("late", "due", "clock-alert"),
    WorstState.LIVE: Badge("all live", "good", "circle-dot"),
    WorstState.EMPTY: Badge("no machines", "quiet", "circle-dashed"),
}
ENTRY_BADGES: dict[EntryKind, Badge] = {
    EntryKind.EVENT_SEEN: Badge("Announced", "due", "calendar-clock"),
    EntryKind.EVENT_SIGHTED: Badge("Seen", "quiet", "eye"),
    EntryKind.EVENT_CHANGED: Badge("Changed", "due", "pencil"),
    EntryKind.EVENT_STARTED: Badge("Started", "busy", "play"),
    EntryKind.EVENT_ENDED: Badge("Ended", "good", "circle-check"),
    EntryKind.EVENT_REOPENED: Badge("Reopened", "due", "rotate-ccw"),
    EntryKind.EVENT_UNWATCHED: Badge("Unwatched", "bad", "eye-off"),
    EntryKind.EVENT_WATCHED: Badge("Watched again", "quiet", "eye"),
    EntryKind.FOREIGN_SIGHTING: Badge("Foreign sighting", "bad", "triangle-alert"),
    EntryKind.DOCUMENT_UNREADABLE: Badge("Unreadable document", "bad", "file-question-mark"),
    EntryKind.QUARANTINED: Badge("Quarantined reports", "bad", "shield-alert"),
    EntryKind.REPORT_UNKNOWN: Badge("Unknown report", "due", "file-question-mark"),
    EntryKind.REPORT_REFUSED: Badge("Refused report", "bad", "file-x"),
    EntryKind.ROWS_ARCHIVED: Badge("Left for the archive", "quiet", "archive"),
    EntryKind.ERA_BEGUN: Badge("Era begun", "due", "rotate-ccw"),
    EntryKind.REPORTS_LOST: Badge("Lost reports", "bad", "file-question-mark"),
    EntryKind.SPOOL_REUSED: Badge("Older state folder", "due", "history"),
    EntryKind.EVENT_CLAIMED: Badge("Claimed", "calm", "hand"),
    EntryKind.CLAIM_ENDED: Badge("Given back", "quiet", "undo-2"),
    EntryKind.EVENT_HELD: Badge("Left to Azure", "due", "circle-pause"),
    EntryKind.HOLD_ENDED: Badge("Taken back", "quiet", "circle-play"),
    EntryKind.APPROVAL_PROPOSED: Badge("Proposed", "due", "users"),
    EntryKind.APPROVAL_CONSENTED: Badge("Second person agreed", "busy", "user-check"),
    EntryKind.APPROVAL_PLANNED: Badge("Approved, waits", "busy", "hourglass"),
    EntryKind.APPROVAL_GRANTED: Badge("Approved", "busy", "gavel"),
    EntryKind.APPROVAL_DUE: Badge("Condition met", "busy", "gavel"),
    EntryKind.APPROVAL_ACCEPTED: Badge("Azure accepted", "busy", "cloud"),
    EntryKind.APPROVAL_CORRECTED: Badge("Approval corrected", "busy", "cloud"),
    EntryKind.APPROVAL_CONFIRMED: Badge("Approval confirmed", "good", "circle-check"),
    EntryKind.APPROVAL_WITHDRAWN: Badge("Approval withdrawn", "quiet", "undo-2"),
    EntryKind.APPROVAL_REFUSED: Badge("Approval refused", "bad", "octagon-x"),
    EntryKind.APPROVAL_LAPSED: Badge("Approval lapsed", "bad", "timer-off"),
    EntryKind.APPROVAL_VOID: Badge("Approval void", "quiet", "circle-slash"),
    EntryKind.ORDER_OFFERED: Badge("Order offered", "busy", "mail"),
    EntryKind.ORDER_DELIVERED: Badge("Order delivered", "busy", "mail-check"),
    EntryKind.ORDER_ANSWERED: Badge("Order answered", "busy", "reply"),
    EntryKind.ORDER_SUPERSEDED: Badge("Order superseded", "quiet", "skip-forward"),
    EntryKind.ORDER_EXPIRED: Badge("Order expired", "bad", "timer-off"),
    EntryKind.ORDER_CANCELLED: Badge("Order cancelled", "quiet", "ban"),
    EntryKind.LATE_RECEIPT: Badge("Late receipt", "quiet", "history"),
    EntryKind.HOOK_SUCCEEDED: Badge("Hook succeeded", "good", "terminal"),
    EntryKind.HOOK_FAILED: Badge("Hook failed", "bad", "terminal"),
    EntryKind.HOOK_LATE: Badge("Prepares late", "due", "clock-alert"),
    EntryKind.HOOKS_BEGAN: Badge("Hooks began", "busy", "loader-circle"),
    EntryKind.HOOKS_ENDED: Badge("Hooks ended", "quiet", "terminal"),
    EntryKind.WAVE_BEGAN: Badge("Wave began", "busy", "waves-horizontal"),
    EntryKind.WAVE_ENDED: Badge("Wave done", "good", "waves-horizontal"),
    EntryKind.WAVE_STOPPED: Badge("Wave stopped", "bad", "octagon-x"),
    EntryKind.DRILL_BEGAN: Badge("Drill began", "busy", "siren"),
    EntryKind.DRILL_STEP: Badge("Drill", "calm", "siren"),
    EntryKind.DRILL_ENDED: Badge("Drill ended", "good", "siren"),
    EntryKind.MACHINE_ENROLLED: Badge("Enrolled", "calm", "server"),
    EntryKind.MACHINE_ENROLLED_AGAIN: Badge("Enrolled again", "due", "server"),
    EntryKind.MACHINE_CHANGED: Badge("Machine changed", "calm", "server-cog"),
    EntryKind.MACHINE_IDENTIFIED: Badge("Machine identified", "calm", "server-cog"),
    EntryKind.MACHINE_REVOKED: Badge("Revoked", "bad", "server-off"),
    EntryKind.MACHINE_WAITS: Badge("Waits for admission", "due", "hourglass"),
    EntryKind.MACHINE_ADMITTED: Badge("Admitted", "calm", "user-check"),
    EntryKind.ADMISSION_REFUSED: Badge("Admission refused", "bad", "shield-x"),
    EntryKind.NAME_HELD: Badge("Name held", "due", "triangle-alert"),
    EntryKind.NAME_GIVEN: Badge("Name given", "calm", "server-cog"),
    EntryKind.MACHINE_MOVED: Badge("Moved to another set", "calm", "arrow-right-left"),
    EntryKind.SET_MERGED: Badge("Sets joined", "calm", "merge"),
    EntryKind.SET_NAMED: Badge("Set named", "calm", "tag"),
    EntryKind.SET_CHANGED: Badge("Set's settings changed", "calm", "settings-2"),
    EntryKind.SET_LOWERED: Badge("Requirement lowered", "due", "shield-alert"),
    EntryKind.SET_DISPUTED: Badge("Set unclear", "due", "triangle-alert"),
    EntryKind.SET_AGREED: Badge("Set clear again", "quiet", "circle-check"),
    EntryKind.INVENTORY_IMPORTED: Badge("Inventory imported", "calm", "clipboard-list"),
    EntryKind.MAINTENANCE_SCHEDULED: Badge("Cache maintenance announced", "due", "calendar-clock"),
    EntryKind.MAINTENANCE_STARTING: Badge("Cache maintenance starting", "due", "timer"),
    EntryKind.MAINTENANCE_STARTED: Badge("Cache maintenance started", "busy", "database-zap"),
    EntryKind.MAINTENANCE_FAILED_OVER: Badge("Cache failed over", "busy", "arrow-right-left"),
    EntryKind.MAINTENANCE_ENDED: Badge("Cache maintenance ended", "good", "circle-check"),
    EntryKind.MAINTENANCE_SCALED: Badge("Cache scaled", "calm", "scaling"),
    EntryKind.MAINTENANCE_END_NOT_SEEN: Badge("End not seen", "due", "circle-question-mark"),
    EntryKind.MAINTENANCE_NEVER_STARTED: Badge("Never started", "quiet", "circle-slash"),
    EntryKind.NOTIFICATION_UNKNOWN: Badge("Unknown notification", "due", "file-question-mark"),
    EntryKind.CACHE_LISTENED: Badge("Listening", "quiet", "ear"),
    EntryKind.CACHE_LOST: Badge("Not listening", "due", "ear-off"),
    EntryKind.CACHE_LOST_UNANNOUNCED: Badge("Connection lost unannounced", "bad", "unplug"),
    EntryKind.CACHE_REFUSED: Badge("Login refused", "bad", "shield-x"),
    EntryKind.CACHE_UNSUPPORTED: Badge("Publishes nothing", "due", "ear-off"),
    EntryKind.RULE_CREATED: Badge("Rule made", "calm", "scale"),
    EntryKind.RULE_CHANGED: Badge("Rule changed", "calm", "scale"),
    EntryKind.RULE_DELETED: Badge("Rule deleted", "calm", "scale"),
    EntryKind.WINDOW_CREATED: Badge("No-approval window made", "calm", "calendar-off"),
    EntryKind.WINDOW_DELETED: Badge("No-approval window deleted", "calm", "calendar-off"),
    EntryKind.APPROVALS_STOPPED: Badge("All approvals stopped", "bad", "octagon-x"),
    EntryKind.STOP_LIFTED: Badge("Stop lifted", "due", "circle-play"),
    EntryKind.PERSON_CHANGED: Badge("Person changed", "calm", "user-cog"),
    EntryKind.MAPPING_CHANGED: Badge("Mapping changed", "calm", "key-round"),
    EntryKind.BREAK_GLASS_USED: Badge("Break-glass account used", "bad", "siren"),
    EntryKind.PERSON_FORGOTTEN: Badge("Person forgotten", "calm", "user-cog"),
    EntryKind.SIGNING_KEY_MADE: Badge("Signing key made", "calm", "file-key"),
    EntryKind.SIGNING_KEY_RETIRED: Badge("Signing key retired", "calm", "file-key"),
    EntryKind.HANDOVER_READ: Badge("Took over", "calm", "book-open-check"),
    EntryKind.VIEW_SAVED: Badge("View saved", "quiet", "bookmark"),
    EntryKind.VIEW_DELETED: Badge("View deleted", "quiet", "bookmark-x"),
    EntryKind.CHANNEL_FAILING: Badge("Channel fails", "bad", "bell-off"),
    EntryKind.CHANNEL_WORKS: Badge("Channel works again", "good", "bell-ring"),
    EntryKind.SOURCE_QUIET: Badge("Source went quiet", "due", "circle-off"),
    EntryKind.SET_UNWATCHED: Badge("Set is not watched", "bad", "eye-off"),
    EntryKind.COVERAGE_OPENED: Badge("Blind spot", "due", "eye-off"),
    EntryKind.COVERAGE_CLOSED: Badge("Blind spot is gone", "good", "eye"),
    EntryKind.AUDIT_FAILED: Badge("Audit does not verify", "bad", "shield-x"),
    EntryKind.STORAGE_TROUBLE: Badge("Trouble with storage", "bad", "database-zap"),
    EntryKind.CHANNEL_CREATED: Badge("Channel made", "calm", "megaphone"),
    EntryKind.CHANNEL_CHANGED: Badge("Channel changed", "calm", "megaphone"),
    EntryKind.CHANNEL_DELETED: Badge("Channel deleted", "calm", "megaphone-off"),
    EntryKind.CHANNEL_TRIED: Badge("Channel tried", "quiet", "send"),
    EntryKind.ROUTE_CREATED: Badge("Route made", "calm", "split"),
    EntryKind.ROUTE_CHANGED: Badge("Route changed", "calm", "split"),
    EntryKind.ROUTE_DELETED: Badge("Route deleted", "calm", "split"),
    EntryKind.MESSAGE_SENT_AGAIN: Badge("Message sent again", "calm", "send"),
    EntryKind.TOKEN_CREATED: Badge("Token made", "calm", "key-round"),
    EntryKind.TOKEN_EXPIRES: Badge("Token expires soon", "due", "key-round"),
    EntryKind.TOKEN_ENDED: Badge("Token ended", "calm", "key-round"),
    EntryKind.CALENDAR_MADE: Badge("Calendar made", "calm", "calendar"),
    EntryKind.CALENDAR_ENDED: Badge("Calendar ended", "calm", "calendar"),
    EntryKind.PUSH_KEY_MADE: Badge("Push key made", "calm", "file-key"),
    EntryKind.ENTRANCE_CHANGED: Badge("Enrolment policy changed", "calm", "key-round"),
    EntryKind.JOIN_TOKEN_ENDED: Badge("Join token ended", "calm", "key-round"),
    EntryKind.LOGINS_REFUSED: Badge("Password guessed at", "due", "shield-alert"),
    EntryKind.NEW_DEVICE: Badge("New device", "due", "monitor-smartphone"),
}
# Entries that stand in one line, by what that says.
SERIES_BADGES: dict[str, Badge] = {
    "azure-was-busy": Badge("Azure was busy", "due", "rotate-ccw"),
    "listeners-cut-off": Badge("Not listening", "due", "ear-off"),
    "listeners-came": Badge("Listening", "quiet", "ear"),
    "machines-came": Badge("Enrolled", "calm", "server"),
}
# An entry that another release has written.
OTHER_BADGE = Badge("Of another release", "quiet", "circle-question-mark")

# Annexes add those of their own states.
BY_KIND: dict[type, Mapping[Any, Badge]] = {
    EventStatus: EVENT_BADGES,
    EndedAs: ENDED_AS_BADGES,
    ApprovalState: APPROVAL_BADGES,
    OrderState: ORDER_BADGES,
    Presence: PRESENCE_BADGES,
    Outcome: OUTCOME_BADGES,
    WaveState: WAVE_BADGES,
    Phase: PHASE_BADGES,
    MaintenanceStatus: MAINTENANCE_BADGES,
    Prepared: PREPARED_BADGES,
    Confidence: CONFIDENCE_BADGES,
    Would: WOULD_BADGES,
    EntryKind: ENTRY_BADGES,
    Need: NEED_BADGES,
    Severity: SEVERITY_BADGES,
    RelayHealth: RELAY_BADGES,
    WorstState: GLANCE_BADGES,
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


def badge_of(shown: Any) -> Badge:
    """How a state, a kind, or a row that has one, is shown."""
    match shown:
        case TimelineRow():
            look = ENTRY_BADGES.get(shown.kind, OTHER_BADGE)
            # Azure knows nothing of a drill.
            if shown.drill and "Azure" in look.label:
                return replace(look, label=look.label.removeprefix("Azure ").capitalize())
            return look
        case Series():
            return SERIES_BADGES[shown.text.code]
        case DrillRow():
            return OUTCOME_BADGES[shown.outcome] if shown.outcome else RUNNING_BADGE
        case ListenerRow() | Stretch():
            return COVERAGE_BADGES[shown.state]
        case MaintenanceRow():
            return MAINTENANCE_BADGES[shown.status]
    return BY_KIND[type(shown)][shown]
