"""Kinds of timeline entries, what one says of a change, and the chain of hashes over them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

NO_HASH = "0" * 64
# What was written before anybody began one; and the largest that its column holds.
FIRST_ERA = 1
LAST_ERA = 2**15 - 1

# (era, xid, id) of a row. Transactions are numbered within an era: a database that was restored begins a new one.
Place = tuple[int, int, int]


class EntryKind(StrEnum):
    """What an entry tells. Of a kind that stands here not, a later release wrote the entry: it is read as it is."""

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
    QUARANTINED = "quarantined"
    REPORT_REFUSED = "report_refused"
    REPORTS_LOST = "reports_lost"
    SPOOL_REUSED = "spool_reused"
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
    APPROVAL_CORRECTED = "approval_corrected"
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
    MACHINE_IDENTIFIED = "machine_identified"
    MACHINE_REVOKED = "machine_revoked"
    MACHINE_WAITS = "machine_waits"
    MACHINE_ADMITTED = "machine_admitted"
    ADMISSION_REFUSED = "admission_refused"
    NAME_HELD = "name_held"
    NAME_GIVEN = "name_given"
    MACHINE_MOVED = "machine_moved"
    SET_MERGED = "set_merged"
    SET_NAMED = "set_named"
    SET_CHANGED = "set_changed"
    SET_LOWERED = "set_lowered"
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
    APPROVALS_STOPPED = "approvals_stopped"
    STOP_LIFTED = "stop_lifted"
    PERSON_CHANGED = "person_changed"
    MAPPING_CHANGED = "mapping_changed"
    BREAK_GLASS_USED = "break_glass_used"
    PERSON_FORGOTTEN = "person_forgotten"
    SIGNING_KEY_MADE = "signing_key_made"
    SIGNING_KEY_RETIRED = "signing_key_retired"
    # A kind of entry, no password.
    TOKEN_CREATED = "token_created"  # noqa: S105
    TOKEN_EXPIRES = "token_expires"  # noqa: S105
    TOKEN_ENDED = "token_ended"  # noqa: S105
    CALENDAR_MADE = "calendar_made"
    CALENDAR_ENDED = "calendar_ended"
    PUSH_KEY_MADE = "push_key_made"
    ENTRANCE_CHANGED = "entrance_changed"
    JOIN_TOKEN_ENDED = "join_token_ended"  # noqa: S105
    LOGINS_REFUSED = "logins_refused"
    NEW_DEVICE = "new_device"
    ERA_BEGUN = "era_begun"
    ROWS_ARCHIVED = "rows_archived"
    HANDOVER_READ = "handover_read"
    VIEW_SAVED = "view_saved"
    VIEW_DELETED = "view_deleted"
    CHANNEL_FAILING = "channel_failing"
    CHANNEL_WORKS = "channel_works"
    SOURCE_QUIET = "source_quiet"
    SET_UNWATCHED = "set_unwatched"
    COVERAGE_OPENED = "coverage_opened"
    COVERAGE_CLOSED = "coverage_closed"
    AUDIT_FAILED = "audit_failed"
    STORAGE_TROUBLE = "storage_trouble"
    CHANNEL_CREATED = "channel_created"
    CHANNEL_CHANGED = "channel_changed"
    CHANNEL_DELETED = "channel_deleted"
    CHANNEL_TRIED = "channel_tried"
    ROUTE_CREATED = "route_created"
    ROUTE_CHANGED = "route_changed"
    ROUTE_DELETED = "route_deleted"
    MESSAGE_SENT_AGAIN = "message_sent_again"

    @classmethod
    def _missing_(cls, value: object) -> "EntryKind | None":
        # One that is no member: it stands in no table, and `known` says so.
        if not isinstance(value, str):
            return None
        found = str.__new__(cls, value)
        found._name_ = found._value_ = value
        return found

    @property
    def known(self) -> bool:
        """Whether this release writes such entries."""
        return self.value in type(self)._value2member_map_


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of what stood before and stands after, what is not the same; None for what is only in the other."""
    names = [*after, *(name for name in before if name not in after)]
    changed = [name for name in names if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in changed}, {name: after.get(name) for name in changed}


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest link of the chain."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


class Chain:
    """The hash of one seal, fed piece by piece, in bounded memory.

    What is hashed, exactly: `hash` is the SHA-256, in lower case hex, of these bytes one after the other:

    1. the text `drydock-seal-1` (`drydock-seal-2` where `last_era` is greater than 1), a line feed, then number,
       `previous_hash` (64 zeros for the first seal) and `sealed_at` (`2026-11-20T13:00:00.000000+00:00`, in UTC), each
       ended by a line feed;
    2. for each row one line, in the text format of Postgres' COPY, in UTF-8: the columns of `COLUMNS` in
       `fleet.models.timeline` in that order with a tab between them, a line feed at the end, NULL as `\\N`, and
       backslash, tab, line feed and carriage return (and the other control characters that COPY escapes) inside a
       value as `\\\\`, `\\t`, `\\n` and `\\r`. Whole numbers are decimal; times are seconds since 1970 UTC with six
       decimals; `before`, `after` and `data` are jsonb as Postgres writes it; everything else is its own text;
    3. the text `end`, then rows, `last_era`, `last_xid` and `last_id`, each preceded by a blank, and a line feed.

    Where `last_era` is 1, it and the column `era` are left out, as 0.1.0 did, and no row is of another era.

    None of it depends on Django, so that another program can compute the same.
    """

    def __init__(self, *, number: int, previous_hash: str, sealed_at: datetime, era: int) -> None:
        form = 1 if era == FIRST_ERA else 2
        at = sealed_at.astimezone(UTC).isoformat(timespec="microseconds")
        self._hash = hashlib.sha256(f"drydock-seal-{form}\n{number}\n{previous_hash}\n{at}\n".encode())
        self.rows = 0

    def feed(self, lines: bytes) -> None:
        """Whole lines or parts of them; a line feed stands at the end of rows and nowhere else."""
        self._hash.update(lines)
        self.rows += lines.count(b"\n")

    def digest(self, last: Place) -> str:
        """The hash, once everything was fed."""
        ended = self._hash.copy()
        stated = last[1:] if last[0] == FIRST_ERA else last
        ended.update(" ".join(["end", *map(str, (self.rows, *stated))]).encode() + b"\n")
        return ended.hexdigest()
