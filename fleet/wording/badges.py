"""Badges of states and kinds, with one table for each enum."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fleet.domain.approvals.guards import Need
from fleet.domain.blind_spots import Confidence
from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.desk import CacheState, RelayHealth, WorstState
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
    """How a state is shown: a word, a tone (`calm`, `due`, `busy`, `good`, `bad`, `quiet`), and the name of a Lucide
    icon.
    """

    label: str
    tone: str
    icon: str


RUNNING_BADGE = Badge("under way", "busy", "loader-circle")
# Values reported by agents; `silent`: the agent listened, and is no longer heard.
COVERAGE_BADGES: dict[str, Badge] = {
    "subscribed": Badge("listening", "good", "ear"),
    "lost": Badge("connection lost", "bad", "unplug"),
    "stale": Badge("no answer", "bad", "ear-off"),
    "refused": Badge("refused", "bad", "shield-x"),
    "unsupported": Badge("publishes nothing", "quiet", "minus"),
    # Not reported by the agent: the agent itself is not heard.
    "silent": Badge("agent silent", "bad", "circle-off"),
}
STEP_BADGES: dict[str, Badge] = {
    "done": Badge("done", "good", "circle-check"),
    "now": Badge("in progress", "busy", "loader-circle"),
    "overdue": Badge("overdue", "bad", "clock-alert"),
    "failed": Badge("failed", "bad", "circle-x"),
    "ahead": Badge("not yet", "quiet", "circle-dashed"),
}
# Series of entries that share one line, by the code of their text.
SERIES_BADGES: dict[str, Badge] = {
    "azure-was-busy": Badge("Azure was busy", "due", "rotate-ccw"),
    "listeners-cut-off": Badge("Not listening", "due", "ear-off"),
    "listeners-came": Badge("Listening", "quiet", "ear"),
    "machines-came": Badge("Enrolled", "calm", "server"),
}
# An entry written by another release.
OTHER_BADGE = Badge("From another release", "quiet", "circle-question-mark")


STATE_BADGES: list[tuple[Any, Badge]] = [
    (EventStatus.SCHEDULED, Badge("Scheduled", "due", "calendar-clock")),
    (EventStatus.STARTED, Badge("Started", "busy", "play")),
    (EventStatus.ENDED, Badge("Ended", "quiet", "circle-check")),
    (EndedAs.COMPLETED, Badge("completed", "good", "circle-check")),
    (EndedAs.CANCELLED, Badge("cancelled by Azure", "quiet", "ban")),
    (EndedAs.CANCELLED_OR_MISSED, Badge("cancelled, or missed between two polls", "quiet", "circle-question-mark")),
    (EndedAs.MACHINE_DELETED, Badge("machine deleted", "bad", "trash-2")),
    (EndedAs.UNKNOWN, Badge("ending unknown", "quiet", "circle-question-mark")),
    (ApprovalState.PROPOSED, Badge("Waiting for a second person", "due", "users")),
    (ApprovalState.WAITING, Badge("Approved, waiting", "due", "hourglass")),
    (ApprovalState.GRANTED, Badge("Decided", "busy", "gavel")),
    (ApprovalState.RELAYING, Badge("Sent to an agent", "busy", "send")),
    (ApprovalState.ACCEPTED, Badge("Azure answered 200", "busy", "cloud")),
    (ApprovalState.CONFIRMED, Badge("Confirmed", "good", "circle-check")),
    (ApprovalState.WITHDRAWN, Badge("Withdrawn", "quiet", "undo-2")),
    (ApprovalState.REFUSED, Badge("Refused", "bad", "octagon-x")),
    (ApprovalState.LAPSED, Badge("Lapsed", "bad", "timer-off")),
    (ApprovalState.VOID, Badge("Void", "quiet", "minus")),
    (OrderState.OFFERED, Badge("Offered", "busy", "mail")),
    (OrderState.DELIVERED, Badge("Delivered", "busy", "mail-check")),
    (OrderState.ANSWERED, Badge("Answered", "good", "reply")),
    (OrderState.SUPERSEDED, Badge("Superseded", "quiet", "skip-forward")),
    (OrderState.EXPIRED, Badge("Expired", "bad", "timer-off")),
    (OrderState.CANCELLED, Badge("Cancelled", "quiet", "ban")),
    (Presence.LIVE, Badge("live", "good", "circle-dot")),
    (Presence.LATE, Badge("late", "due", "clock-alert")),
    (Presence.SILENT, Badge("silent", "bad", "circle-off")),
    (Presence.GONE, Badge("gone", "quiet", "circle-x")),
    (Presence.EXPECTED, Badge("not connected yet", "calm", "circle-dashed")),
    (Outcome.COMPLETED, Badge("completed", "good", "circle-check")),
    (Outcome.NOT_APPROVED, Badge("not approved in time", "bad", "timer-off")),
    (Outcome.STOPPED, Badge("stopped by a user", "quiet", "ban")),
    (Outcome.OVERTAKEN, Badge("cancelled for a real event", "due", "triangle-alert")),
    (Outcome.NO_MACHINE, Badge("no machine took part", "bad", "circle-off")),
    (Outcome.UNFINISHED, Badge("not completed", "bad", "octagon-x")),
    (WaveState.RUNNING, Badge("Under way", "busy", "waves-horizontal")),
    (WaveState.DONE, Badge("Done", "good", "circle-check")),
    (WaveState.STOPPED, Badge("Stopped", "bad", "octagon-x")),
    (Phase.WAITS, Badge("Waiting", "due", "hourglass")),
    (Phase.IN_FLIGHT, Badge("Under way", "busy", "play")),
    (Phase.RETURNING, Badge("Not back yet", "due", "rotate-ccw")),
    (Phase.BACK, Badge("Back", "good", "circle-check")),
    (Phase.LEFT_OUT, Badge("Skipped", "quiet", "minus")),
    (MaintenanceStatus.ANNOUNCED, Badge("announced", "due", "calendar-clock")),
    (MaintenanceStatus.STARTING, Badge("starting", "due", "timer")),
    (MaintenanceStatus.UNDER_WAY, Badge("under way", "busy", "play")),
    (MaintenanceStatus.FAILED_OVER, Badge("failed over", "busy", "arrow-right-left")),
    (MaintenanceStatus.ENDED, Badge("ended", "good", "circle-check")),
    (MaintenanceStatus.END_NOT_SEEN, Badge("end not seen", "quiet", "circle-question-mark")),
    (MaintenanceStatus.NEVER_STARTED, Badge("announced, never started", "quiet", "minus")),
    (Prepared.UNKNOWN, Badge("not reported", "quiet", "circle-question-mark")),
    (Prepared.PLANNED, Badge("prepare planned", "calm", "calendar-clock")),
    (Prepared.PREPARING, Badge("preparing", "busy", "loader-circle")),
    (Prepared.PREPARED, Badge("prepared", "good", "circle-check")),
    (Prepared.NOTHING, Badge("nothing to prepare", "quiet", "circle-minus")),
    (Prepared.FAILED, Badge("prepare failed", "bad", "octagon-x")),
    (Prepared.RECOVERING, Badge("recovering", "busy", "loader-circle")),
    (Prepared.RECOVERED, Badge("recovered", "good", "circle-check")),
    (Prepared.RECOVER_FAILED, Badge("recover failed", "bad", "octagon-x")),
    (Confidence.CERTAIN, Badge("certain", "bad", "circle-alert")),
    (Confidence.LIKELY, Badge("likely", "due", "triangle-alert")),
    (Confidence.POSSIBLE, Badge("possible", "calm", "circle-question-mark")),
    (Confidence.UNKNOWN, Badge("not detectable", "quiet", "circle-dashed")),
    (Would.APPROVE, Badge("approve", "good", "gavel")),
    (Would.LATER, Badge("approve later", "busy", "hourglass")),
    (Would.HOLD, Badge("leave to Azure", "due", "circle-pause")),
    (Would.LEAVE, Badge("leave to users", "calm", "users")),
    (Would.GUARDED, Badge("blocked by a guard", "due", "shield-alert")),
    (Would.EARLIER, Badge("decided by an earlier rule", "quiet", "list-ordered")),
    *((kind, Badge(kind.label, kind.tone, kind.icon)) for kind in EntryKind),
    (Need.BLOCKS, Badge("cannot be overridden", "bad", "octagon-x")),
    (Need.SECOND, Badge("needs a second person", "due", "users")),
    (Need.STEP_UP, Badge("needs a new proof of identity", "due", "key-round")),
    (Need.REASON, Badge("needs a reason", "due", "triangle-alert")),
    (Need.NOTE, Badge("for your information", "quiet", "info")),
    (Severity.CRITICAL, Badge("critical", "bad", "octagon-alert")),
    (Severity.WARNING, Badge("warning", "due", "triangle-alert")),
    (Severity.INFO, Badge("info", "calm", "info")),
    (RelayHealth.WORKS, Badge("OK", "good", "radio-tower")),
    (RelayHealth.WITHOUT_CELERY, Badge("Celery not running", "due", "triangle-alert")),
    (RelayHealth.STANDS_STILL, Badge("not running", "bad", "octagon-x")),
    # Worst state of a set on the map; each has its own shape there.
    (WorstState.DECIDE_UNWATCHED, Badge("decision needed, no live agent", "bad", "octagon-alert")),
    (WorstState.DECIDE, Badge("decision needed", "due", "triangle-alert")),
    (WorstState.UNWATCHED, Badge("no live agent", "bad", "eye-off")),
    (WorstState.STARTED, Badge("event under way", "busy", "play")),
    (WorstState.SCHEDULED, Badge("event announced", "busy", "calendar-clock")),
    (WorstState.PARTLY, Badge("some agents not live", "due", "circle-off")),
    (WorstState.LATE, Badge("some agents late", "due", "clock-alert")),
    (WorstState.LIVE, Badge("all agents live", "good", "circle-dot")),
    (WorstState.EMPTY, Badge("no machines", "quiet", "circle-dashed")),
    # A cache has the shape of the state of a set with the same value.
    (CacheState.UNWATCHED, Badge("not monitored", "bad", "eye-off")),
    (CacheState.STARTED, Badge("maintenance under way", "busy", "play")),
    (CacheState.SCHEDULED, Badge("maintenance announced", "busy", "calendar-clock")),
    (CacheState.LIVE, Badge("monitored", "good", "circle-dot")),
    (CacheState.EMPTY, Badge("publishes no maintenance", "quiet", "circle-dashed")),
]
# By the enum of the state: members of different enums may have equal values. Annexes add those of their own states.
BY_KIND: dict[type, Mapping[Any, Badge]] = {
    kind: dict(badges) for kind, badges in groupby(STATE_BADGES, lambda row: type(row[0]))
}


def state_of(shown: Any) -> Any:
    """Return the state of `shown`, which is a state or a row that has a state."""
    match shown:
        case DrillRow():
            return shown.outcome or "running"
        case ListenerRow() | Stretch():
            return shown.state
        case MaintenanceRow():
            return shown.status
    return shown


def badge_of(shown: Any) -> Badge:
    """Return the badge of `shown`, which is a state, a kind, or a row that has one."""
    match shown:
        case TimelineRow():
            badge = BY_KIND[EntryKind].get(shown.kind, OTHER_BADGE)
            # Azure is not involved in a drill.
            if shown.drill and "Azure" in badge.label:
                return Badge(badge.label.removeprefix("Azure ").capitalize(), badge.tone, badge.icon)
            return badge
        case Series():
            return SERIES_BADGES[shown.text.code]
    state = state_of(shown)
    return RUNNING_BADGE if state == "running" else BY_KIND.get(type(state), COVERAGE_BADGES)[state]
