"""Kinds of timeline entries, the form of a change in an entry, and the hash chain over all entries."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, Self

NO_HASH = "0" * 64
# The era of entries from before the first recorded one; and the largest that its column can store.
FIRST_ERA = 1
LAST_ERA = 2**15 - 1

# (era, xid, id) of a row. Transactions are numbered within an era: a database that was restored begins a new one.
Place = tuple[int, int, int]


class Trait(Enum):
    """Further properties of a kind of timeline entry.

    `MOVES_EVENT`: decisions about events of the same set or service may change. `MOVES_MACHINE`: the machines of the
    set may change. `CHANGES_FLEET`: all open events are checked again. `CHANGES_PEOPLE`: a user who decided may have
    lost the right to. `FOR_ALL`: every reader sees the entry, although it concerns no set, machine or cache.
    `NAMES_TWO_SETS`: the entry names a second set. The other `NAMES_…` state which field of `data`, `before` and
    `after` names a person besides the actor; in these entries, the value `by` of every reason also names a person.
    """

    MOVES_EVENT = "moves-event"
    MOVES_MACHINE = "moves-machine"
    CHANGES_FLEET = "changes-fleet"
    CHANGES_PEOPLE = "changes-people"
    FOR_ALL = "for-all"
    NAMES_TWO_SETS = "two-sets"
    NAMES_IN_REASONS = ""
    NAMES_PERSON = "person"
    NAMES_OWNER = "owner"
    NAMES_CLAIM = "claim"
    NAMES_HOLD = "hold"
    NAMES_BY = "by"


# Traits that several kinds share: of decisions about an event, of machines that change sets, of accounts, and of all.
DECIDED = (Trait.MOVES_EVENT, Trait.NAMES_IN_REASONS)
MOVED = (Trait.MOVES_MACHINE, Trait.NAMES_TWO_SETS)
OF_PEOPLE = (Trait.CHANGES_PEOPLE, Trait.NAMES_PERSON)
FLEET_WIDE = (Trait.CHANGES_FLEET, Trait.FOR_ALL)


class EntryKind(StrEnum):
    """Registry of the kinds of timeline entries: code; label, tone and icon of the badge; traits.

    The sentence of a kind is in `fleet.wording`. A kind that is not listed here was written by a later release; such an
    entry is read unchanged.
    """

    _value_: str
    label: str
    tone: str
    icon: str
    traits: frozenset[Trait]
    # The fields that name people besides the actor, empty where only reasons do; None where nothing does.
    naming: frozenset[str] | None

    def __new__(cls, code: str, label: str = "", tone: str = "", icon: str = "", *traits: Trait) -> Self:
        kind = str.__new__(cls, code)
        kind._value_, kind.label, kind.tone, kind.icon = code, label, tone, icon
        kind.traits = frozenset(traits)
        fields = {trait.value for trait in traits if trait.name.startswith("NAMES_")} - {Trait.NAMES_TWO_SETS.value}
        kind.naming = frozenset(fields) - {""} if fields else None
        return kind

    EVENT_SEEN = "event_seen", "Announced", "due", "calendar-clock", Trait.MOVES_EVENT
    EVENT_SIGHTED = "event_sighted", "Seen", "quiet", "eye"
    EVENT_CHANGED = "event_changed", "Changed", "due", "pencil"
    EVENT_STARTED = "event_started", "Started", "busy", "play", Trait.MOVES_EVENT
    EVENT_ENDED = "event_ended", "Ended", "good", "circle-check", Trait.MOVES_EVENT
    EVENT_REOPENED = "event_reopened", "Reopened", "due", "rotate-ccw", Trait.MOVES_EVENT
    EVENT_UNWATCHED = "event_unwatched", "No live agent", "bad", "eye-off"
    EVENT_WATCHED = "event_watched", "Agent live again", "quiet", "eye"
    FOREIGN_SIGHTING = "foreign_sighting", "Foreign sighting", "bad", "triangle-alert", Trait.NAMES_TWO_SETS
    DOCUMENT_UNREADABLE = "document_unreadable", "Unreadable document", "bad", "file-question-mark"
    REPORT_UNKNOWN = "report_unknown", "Unknown report", "due", "file-question-mark"
    QUARANTINED = "quarantined", "Quarantined reports", "bad", "shield-alert"
    REPORT_REFUSED = "report_refused", "Refused report", "bad", "file-x"
    REPORTS_LOST = "reports_lost", "Lost reports", "bad", "file-question-mark"
    SPOOL_REUSED = "spool_reused", "Older state folder", "due", "history"
    EVENT_CLAIMED = "event_claimed", "Claimed", "calm", "hand", Trait.NAMES_CLAIM
    CLAIM_ENDED = "claim_ended", "Claim released", "quiet", "undo-2", Trait.NAMES_CLAIM
    EVENT_HELD = "event_held", "Left to Azure", "due", "circle-pause", Trait.NAMES_HOLD
    HOLD_ENDED = "hold_ended", "No longer left to Azure", "quiet", "circle-play", Trait.NAMES_HOLD
    EVENT_NOTED = "event_noted", "Note", "calm", "message-square"
    SILENCE_CHANGED = "silence_changed", "Silence changed", "due", "bell-off"
    APPROVAL_PROPOSED = "approval_proposed", "Proposed", "due", "users", Trait.NAMES_IN_REASONS
    APPROVAL_CONSENTED = "approval_consented", "Second person agreed", "busy", "user-check", *DECIDED
    APPROVAL_PLANNED = "approval_planned", "Approved, waiting", "busy", "hourglass", Trait.NAMES_IN_REASONS
    APPROVAL_GRANTED = "approval_granted", "Approved", "busy", "gavel", *DECIDED
    APPROVAL_DUE = "approval_due", "Condition met", "busy", "gavel", *DECIDED
    APPROVAL_ACCEPTED = "approval_accepted", "Azure accepted", "busy", "cloud"
    APPROVAL_CORRECTED = "approval_corrected", "Approval corrected", "busy", "cloud", Trait.MOVES_EVENT
    APPROVAL_CONFIRMED = "approval_confirmed", "Approval confirmed", "good", "circle-check", Trait.MOVES_EVENT
    APPROVAL_WITHDRAWN = "approval_withdrawn", "Approval withdrawn", "quiet", "undo-2", *DECIDED
    APPROVAL_REFUSED = "approval_refused", "Approval refused", "bad", "octagon-x", *DECIDED
    APPROVAL_LAPSED = "approval_lapsed", "Approval lapsed", "bad", "timer-off", *DECIDED
    APPROVAL_VOID = "approval_void", "Approval void", "quiet", "circle-slash", *DECIDED
    ORDER_OFFERED = "order_offered", "Order offered", "busy", "mail"
    ORDER_DELIVERED = "order_delivered", "Order delivered", "busy", "mail-check"
    ORDER_ANSWERED = "order_answered", "Order answered", "busy", "reply"
    ORDER_SUPERSEDED = "order_superseded", "Order superseded", "quiet", "skip-forward"
    ORDER_EXPIRED = "order_expired", "Order expired", "bad", "timer-off"
    ORDER_CANCELLED = "order_cancelled", "Order cancelled", "quiet", "ban", Trait.NAMES_IN_REASONS
    LATE_RECEIPT = "late_receipt", "Late receipt", "quiet", "history"
    HOOK_SUCCEEDED = "hook_succeeded", "Hook succeeded", "good", "terminal"
    HOOK_FAILED = "hook_failed", "Hook failed", "bad", "terminal"
    HOOK_LATE = "hook_late", "Prepared late", "due", "clock-alert"
    HOOKS_PLANNED = "hooks_planned", "Prepare planned", "quiet", "calendar-clock"
    HOOKS_BEGAN = "hooks_began", "Hooks started", "busy", "loader-circle"
    HOOKS_ENDED = "hooks_ended", "Hooks ended", "quiet", "terminal"
    WAVE_BEGAN = "wave_began", "Wave started", "busy", "waves-horizontal", Trait.NAMES_IN_REASONS
    WAVE_ENDED = "wave_ended", "Wave done", "good", "waves-horizontal", Trait.NAMES_IN_REASONS
    WAVE_STOPPED = "wave_stopped", "Wave stopped", "bad", "octagon-x", Trait.NAMES_IN_REASONS
    DRILL_BEGAN = "drill_began", "Drill started", "busy", "siren", Trait.NAMES_IN_REASONS
    DRILL_STEP = "drill_step", "Drill", "calm", "siren", Trait.NAMES_IN_REASONS
    DRILL_ENDED = "drill_ended", "Drill ended", "good", "siren", Trait.NAMES_IN_REASONS
    MACHINE_ENROLLED = "machine_enrolled", "Enrolled", "calm", "server", Trait.MOVES_MACHINE
    MACHINE_ENROLLED_AGAIN = "machine_enrolled_again", "Enrolled again", "due", "server", Trait.MOVES_MACHINE
    MACHINE_CHANGED = "machine_changed", "Machine changed", "calm", "server-cog", Trait.MOVES_MACHINE
    MACHINE_IDENTIFIED = "machine_identified", "Machine identified", "calm", "server-cog", Trait.MOVES_MACHINE
    MACHINE_REVOKED = "machine_revoked", "Revoked", "bad", "server-off", Trait.MOVES_MACHINE
    MACHINE_DISCOUNTED = "machine_discounted", "Reports discounted", "due", "server-off", Trait.MOVES_MACHINE
    MACHINE_DECOMMISSIONED = "machine_decommissioned", "Decommissioned", "calm", "server-off", Trait.MOVES_MACHINE
    MACHINE_WAITS = "machine_waits", "Waiting for admission", "due", "hourglass"
    MACHINE_ADMITTED = "machine_admitted", "Admitted", "calm", "user-check", Trait.MOVES_MACHINE
    ADMISSION_REFUSED = "admission_refused", "Admission refused", "bad", "shield-x"
    NAME_HELD = "name_held", "Name in use", "due", "triangle-alert", Trait.NAMES_TWO_SETS
    NAME_GIVEN = "name_given", "Name changed", "calm", "server-cog", Trait.NAMES_TWO_SETS
    MACHINE_MOVED = "machine_moved", "Moved to another set", "calm", "arrow-right-left", *MOVED
    SET_MERGED = "set_merged", "Sets merged", "calm", "merge", *MOVED
    SET_NAMED = "set_named", "Set named", "calm", "tag", Trait.MOVES_MACHINE
    SET_CHANGED = "set_changed", "Set's settings changed", "calm", "settings-2", Trait.CHANGES_FLEET
    SET_LOWERED = "set_lowered", "Requirement lowered", "due", "shield-alert"
    SET_DISPUTED = "set_disputed", "Set not clear", "due", "triangle-alert", Trait.NAMES_TWO_SETS
    SET_AGREED = "set_agreed", "Set confirmed", "quiet", "circle-check", Trait.NAMES_TWO_SETS
    SERVICE_CHANGED = "service_changed", "Service's settings changed", "calm", "settings-2"
    INVENTORY_IMPORTED = "inventory_imported", "Inventory imported", "calm", "clipboard-list", Trait.CHANGES_FLEET
    MAINTENANCE_SCHEDULED = "maintenance_scheduled", "Cache maintenance announced", "due", "calendar-clock"
    MAINTENANCE_STARTING = "maintenance_starting", "Cache maintenance starting", "due", "timer"
    MAINTENANCE_STARTED = "maintenance_started", "Cache maintenance started", "busy", "database-zap"
    MAINTENANCE_FAILED_OVER = "maintenance_failed_over", "Cache failed over", "busy", "arrow-right-left"
    MAINTENANCE_ENDED = "maintenance_ended", "Cache maintenance ended", "good", "circle-check"
    MAINTENANCE_SCALED = "maintenance_scaled", "Cache scaled", "calm", "scaling"
    MAINTENANCE_END_NOT_SEEN = "maintenance_end_not_seen", "End not seen", "due", "circle-question-mark"
    MAINTENANCE_NEVER_STARTED = "maintenance_never_started", "Never started", "quiet", "circle-slash"
    NOTIFICATION_UNKNOWN = "notification_unknown", "Unknown notification", "due", "file-question-mark"
    CACHE_LISTENED = "cache_listened", "Listening", "quiet", "ear"
    CACHE_LOST = "cache_lost", "Not listening", "due", "ear-off"
    CACHE_LOST_UNANNOUNCED = "cache_lost_unannounced", "Connection lost unannounced", "bad", "unplug"
    CACHE_REFUSED = "cache_refused", "Login refused", "bad", "shield-x"
    CACHE_UNSUPPORTED = "cache_unsupported", "Publishes nothing", "due", "ear-off"
    RULE_CREATED = "rule_created", "Rule created", "calm", "scale", Trait.CHANGES_FLEET
    RULE_CHANGED = "rule_changed", "Rule changed", "calm", "scale", Trait.CHANGES_FLEET
    RULE_DELETED = "rule_deleted", "Rule deleted", "calm", "scale", Trait.CHANGES_FLEET
    WINDOW_CREATED = "window_created", "No-approval window created", "calm", "calendar-off", Trait.CHANGES_FLEET
    WINDOW_DELETED = "window_deleted", "No-approval window deleted", "calm", "calendar-off", Trait.CHANGES_FLEET
    APPROVALS_STOPPED = "approvals_stopped", "All approvals stopped", "bad", "octagon-x", *FLEET_WIDE
    STOP_LIFTED = "stop_lifted", "Stop lifted", "due", "circle-play", *FLEET_WIDE, Trait.NAMES_BY
    PERSON_CHANGED = "person_changed", "User changed", "calm", "user-cog", *OF_PEOPLE, Trait.NAMES_OWNER
    MAPPING_CHANGED = "mapping_changed", "Mapping changed", "calm", "key-round", Trait.CHANGES_PEOPLE
    EMERGENCY_SIGN_IN = "break_glass_used", "Emergency account used", "bad", "siren", Trait.FOR_ALL, Trait.NAMES_PERSON
    PERSON_FORGOTTEN = "person_forgotten", "User erased", "calm", "user-cog", *OF_PEOPLE
    SIGNING_KEY_MADE = "signing_key_made", "Signing key created", "calm", "file-key"
    SIGNING_KEY_RETIRED = "signing_key_retired", "Signing key retired", "calm", "file-key"
    TOKEN_CREATED = "token_created", "Token created", "calm", "key-round", Trait.NAMES_PERSON
    TOKEN_EXPIRES = "token_expires", "Token expires soon", "due", "key-round", Trait.NAMES_PERSON
    TOKEN_ENDED = "token_ended", "Token ended", "calm", "key-round", *OF_PEOPLE
    CALENDAR_MADE = "calendar_made", "Calendar created", "calm", "calendar", Trait.NAMES_PERSON
    CALENDAR_ENDED = "calendar_ended", "Calendar ended", "calm", "calendar", Trait.NAMES_PERSON
    PUSH_KEY_MADE = "push_key_made", "Push key created", "calm", "file-key"
    ENTRANCE_CHANGED = "entrance_changed", "Enrolment policy changed", "calm", "key-round"
    JOIN_TOKEN_ENDED = "join_token_ended", "Join token ended", "calm", "key-round"
    LOGINS_REFUSED = "logins_refused", "Sign-in attempts failed", "due", "shield-alert", Trait.NAMES_PERSON
    NEW_DEVICE = "new_device", "New device", "due", "monitor-smartphone", Trait.NAMES_PERSON
    ERA_BEGUN = "era_begun", "Era begun", "due", "rotate-ccw", *FLEET_WIDE
    ROWS_ARCHIVED = "rows_archived", "Archived", "quiet", "archive"
    HANDOVER_READ = "handover_read", "Handover read", "calm", "book-open-check"
    HANDOVER_SENT = "handover_sent", "Shift handed over", "calm", "send", Trait.NAMES_IN_REASONS
    HANDOVER_CONFIRMED = "handover_confirmed", "Handover confirmed", "good", "user-check", Trait.NAMES_BY
    VIEW_SAVED = "view_saved", "View saved", "quiet", "bookmark"
    VIEW_DELETED = "view_deleted", "View deleted", "quiet", "bookmark-x"
    CHANNEL_FAILING = "channel_failing", "Channel fails", "bad", "bell-off"
    CHANNEL_WORKS = "channel_works", "Channel works again", "good", "bell-ring"
    SOURCE_QUIET = "source_quiet", "Agent or listener lost", "due", "circle-off"
    SET_UNWATCHED = "set_unwatched", "No live agent in set", "bad", "eye-off"
    COVERAGE_OPENED = "coverage_opened", "Blind spot", "due", "eye-off"
    COVERAGE_CLOSED = "coverage_closed", "Blind spot resolved", "good", "eye"
    AUDIT_FAILED = "audit_failed", "Audit verification failed", "bad", "shield-x"
    STORAGE_TROUBLE = "storage_trouble", "Storage problem", "bad", "database-zap"
    CHANNEL_CREATED = "channel_created", "Channel created", "calm", "megaphone"
    CHANNEL_CHANGED = "channel_changed", "Channel changed", "calm", "megaphone"
    CHANNEL_DELETED = "channel_deleted", "Channel deleted", "calm", "megaphone-off"
    CHANNEL_TRIED = "channel_tried", "Channel tested", "quiet", "send"
    ROUTE_CREATED = "route_created", "Route created", "calm", "split"
    ROUTE_CHANGED = "route_changed", "Route changed", "calm", "split"
    ROUTE_DELETED = "route_deleted", "Route deleted", "calm", "split"
    MESSAGE_SENT_AGAIN = "message_sent_again", "Notification sent again", "calm", "send"

    @classmethod
    def _missing_(cls, value: object) -> "EntryKind | None":
        # One that is no member: no table has it, and `known` is False.
        if not isinstance(value, str):
            return None
        found = str.__new__(cls, value)
        found._name_ = found._value_ = value
        found.traits, found.naming = frozenset(), None
        return found

    @property
    def known(self) -> bool:
        """Whether this release knows this kind of entry."""
        return self.value in type(self)._value2member_map_


# Groups of kinds for filters, by the beginnings of their codes. A kind belongs to the first group that has it; kinds of
# no group concern sets, rules, notifications and the installation.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Decisions": (
        *("approval", "order_", "late_", "event_claimed", "claim_", "event_held", "hold_", "wave_", "stop_"),
        *("event_noted", "silence_", "handover_sent", "handover_confirmed"),
    ),
    "Agents": (
        *("event_sighted", "machine_", "hook", "name_", "document_", "report", "quarantined", "spool_", "source_"),
        "set_unwatched",
    ),
    "Azure": ("event_", "foreign_"),
    "Caches": ("maintenance_", "cache_", "notification_"),
    "Accounts": ("person_", "mapping_", "token_", "calendar_", "logins_", "new_device", "view_", "handover_"),
}


def kinds_of(group: str) -> tuple[EntryKind, ...]:
    """Return the kinds of timeline entries of this group; none of an unknown group."""
    before = tuple(GROUPS)[: tuple(GROUPS).index(group)] if group in GROUPS else ()
    taken = tuple(start for name in before for start in GROUPS[name])
    of_group = GROUPS.get(group, ())
    return tuple(kind for kind in EntryKind if kind.startswith(of_group) and not kind.startswith(taken))


def kinds_with(trait: Trait) -> tuple[EntryKind, ...]:
    """Return the kinds of timeline entries that have this trait."""
    return tuple(kind for kind in EntryKind if trait in kind.traits)


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values that differ, as two dicts: before and after. A value that is missing on one side is
    None there.
    """
    names = [*after, *(name for name in before if name not in after)]
    changed = [name for name in names if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in changed}, {name: after.get(name) for name in changed}


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest seal of the hash chain."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


class Chain:
    """Computes the hash of one seal from the lines of the timeline, which are fed in pieces, in bounded memory.

    The hash is the SHA-256, in lower-case hex, of these bytes one after the other:

    1. the text `drydock-seal-1` (`drydock-seal-2` where `last_era` is greater than 1), a line feed, then number,
       `previous_hash` (64 zeros for the first seal) and `sealed_at` (`2026-11-20T13:00:00.000000+00:00`, in UTC), each
       ended by a line feed;
    2. for each row one line, in the text format of Postgres' COPY, in UTF-8: the columns of `COLUMNS` in
       `fleet.models.timeline` in that order with a tab between them, a line feed at the end, NULL as `\\N`, and
       backslash, tab, line feed and carriage return (and the other control characters that COPY escapes) inside a
       value as `\\\\`, `\\t`, `\\n` and `\\r`. Whole numbers are decimal; times are seconds since 1970 UTC with six
       decimals; `before`, `after` and `data` are jsonb as Postgres writes it; everything else is its own text;
    3. the text `end`, then rows, `last_era`, `last_xid` and `last_id`, each preceded by a blank, and a line feed.

    If `last_era` is 1, `last_era` and the column `era` are omitted, as in 0.1.0; all rows are then of era 1.

    The definition does not depend on Django, so that another program can compute the same hash.
    """

    def __init__(self, *, number: int, previous_hash: str, sealed_at: datetime, era: int) -> None:
        form = 1 if era == FIRST_ERA else 2
        at = sealed_at.astimezone(UTC).isoformat(timespec="microseconds")
        self._hash = hashlib.sha256(f"drydock-seal-{form}\n{number}\n{previous_hash}\n{at}\n".encode())
        self.rows = 0

    def feed(self, lines: bytes) -> None:
        """Add lines, or parts of lines, to the hash. A line feed occurs only at the end of a row."""
        self._hash.update(lines)
        self.rows += lines.count(b"\n")

    def digest(self, last: Place) -> str:
        """Return the hash of the seal after all rows were fed. `last` is (era, xid, id) of the last row."""
        ended = self._hash.copy()
        stated = last[1:] if last[0] == FIRST_ERA else last
        ended.update(" ".join(["end", *map(str, (self.rows, *stated))]).encode() + b"\n")
        return ended.hexdigest()
