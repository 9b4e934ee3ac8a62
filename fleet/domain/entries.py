"""Kinds of timeline entries, each with how it is shown."""

from enum import StrEnum

from fleet.domain.states import Look


class EntryKind(StrEnum):
    EVENT_SEEN = "event_seen"
    EVENT_SIGHTED = "event_sighted"
    EVENT_CHANGED = "event_changed"
    EVENT_STARTED = "event_started"
    EVENT_ENDED = "event_ended"
    EVENT_REOPENED = "event_reopened"
    EVENT_UNWATCHED = "event_unwatched"
    EVENT_WATCHED = "event_watched"
    FOREIGN_SIGHTING = "foreign_sighting"
    DOCUMENT_UNREADABLE = "document_unreadable"
    REPORT_UNKNOWN = "report_unknown"
    REPORT_REFUSED = "report_refused"
    EVENT_CLAIMED = "event_claimed"
    CLAIM_ENDED = "claim_ended"
    EVENT_HELD = "event_held"
    HOLD_ENDED = "hold_ended"
    APPROVAL_PROPOSED = "approval_proposed"
    APPROVAL_CONSENTED = "approval_consented"
    APPROVAL_PLANNED = "approval_planned"
    APPROVAL_GRANTED = "approval_granted"
    APPROVAL_DUE = "approval_due"
    APPROVAL_ACCEPTED = "approval_accepted"
    APPROVAL_CONFIRMED = "approval_confirmed"
    APPROVAL_WITHDRAWN = "approval_withdrawn"
    APPROVAL_REFUSED = "approval_refused"
    APPROVAL_LAPSED = "approval_lapsed"
    APPROVAL_VOID = "approval_void"
    ORDER_OFFERED = "order_offered"
    ORDER_DELIVERED = "order_delivered"
    ORDER_ANSWERED = "order_answered"
    ORDER_SUPERSEDED = "order_superseded"
    ORDER_EXPIRED = "order_expired"
    ORDER_CANCELLED = "order_cancelled"
    LATE_RECEIPT = "late_receipt"
    HOOK_SUCCEEDED = "hook_succeeded"
    HOOK_FAILED = "hook_failed"
    HOOK_LATE = "hook_late"
    HOOKS_BEGAN = "hooks_began"
    HOOKS_ENDED = "hooks_ended"
    WAVE_BEGAN = "wave_began"
    WAVE_ENDED = "wave_ended"
    WAVE_STOPPED = "wave_stopped"
    DRILL_BEGAN = "drill_began"
    DRILL_STEP = "drill_step"
    DRILL_ENDED = "drill_ended"
    MACHINE_ENROLLED = "machine_enrolled"
    MACHINE_ENROLLED_AGAIN = "machine_enrolled_again"
    MACHINE_CHANGED = "machine_changed"
    MACHINE_REVOKED = "machine_revoked"
    MACHINE_MOVED = "machine_moved"
    SET_MERGED = "set_merged"
    SET_NAMED = "set_named"
    SET_CHANGED = "set_changed"
    SET_DISPUTED = "set_disputed"
    SET_AGREED = "set_agreed"
    INVENTORY_IMPORTED = "inventory_imported"
    MAINTENANCE_SCHEDULED = "maintenance_scheduled"
    MAINTENANCE_STARTING = "maintenance_starting"
    MAINTENANCE_STARTED = "maintenance_started"
    MAINTENANCE_FAILED_OVER = "maintenance_failed_over"
    MAINTENANCE_ENDED = "maintenance_ended"
    MAINTENANCE_SCALED = "maintenance_scaled"
    MAINTENANCE_END_NOT_SEEN = "maintenance_end_not_seen"
    MAINTENANCE_NEVER_STARTED = "maintenance_never_started"
    NOTIFICATION_UNKNOWN = "notification_unknown"
    CACHE_LISTENED = "cache_listened"
    CACHE_LOST = "cache_lost"
    CACHE_LOST_UNANNOUNCED = "cache_lost_unannounced"
    CACHE_REFUSED = "cache_refused"
    CACHE_UNSUPPORTED = "cache_unsupported"
    RULE_CREATED = "rule_created"
    RULE_CHANGED = "rule_changed"
    RULE_DELETED = "rule_deleted"
    WINDOW_CREATED = "window_created"
    WINDOW_DELETED = "window_deleted"
    PERSON_CHANGED = "person_changed"
    SIGNING_KEY_MADE = "signing_key_made"
    SIGNING_KEY_RETIRED = "signing_key_retired"
    # A kind of entry, no password.
    TOKEN_CREATED = "token_created"  # noqa: S105
    TOKEN_ENDED = "token_ended"  # noqa: S105


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
    EntryKind.REPORT_UNKNOWN: Look("Unknown report", "due", "file-question-mark"),
    EntryKind.REPORT_REFUSED: Look("Refused report", "bad", "file-x"),
    EntryKind.EVENT_CLAIMED: Look("Claimed", "calm", "hand"),
    EntryKind.CLAIM_ENDED: Look("Given back", "quiet", "undo-2"),
    EntryKind.EVENT_HELD: Look("Held", "due", "circle-pause"),
    EntryKind.HOLD_ENDED: Look("Hold lifted", "quiet", "circle-play"),
    EntryKind.APPROVAL_PROPOSED: Look("Proposed", "due", "users"),
    EntryKind.APPROVAL_CONSENTED: Look("Second person agreed", "busy", "user-check"),
    EntryKind.APPROVAL_PLANNED: Look("Approved, waits", "busy", "hourglass"),
    EntryKind.APPROVAL_GRANTED: Look("Approved", "busy", "gavel"),
    EntryKind.APPROVAL_DUE: Look("Condition met", "busy", "gavel"),
    EntryKind.APPROVAL_ACCEPTED: Look("Azure accepted", "busy", "cloud"),
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
    EntryKind.MACHINE_REVOKED: Look("Revoked", "bad", "server-off"),
    EntryKind.MACHINE_MOVED: Look("Moved to another set", "calm", "arrow-right-left"),
    EntryKind.SET_MERGED: Look("Sets joined", "calm", "merge"),
    EntryKind.SET_NAMED: Look("Set named", "calm", "tag"),
    EntryKind.SET_CHANGED: Look("Set's settings changed", "calm", "settings-2"),
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
    EntryKind.PERSON_CHANGED: Look("Person changed", "calm", "user-cog"),
    EntryKind.SIGNING_KEY_MADE: Look("Signing key made", "calm", "file-key"),
    EntryKind.SIGNING_KEY_RETIRED: Look("Signing key retired", "calm", "file-key"),
    EntryKind.TOKEN_CREATED: Look("Token made", "calm", "key-round"),
    EntryKind.TOKEN_ENDED: Look("Token ended", "calm", "key-round"),
}
