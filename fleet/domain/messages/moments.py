"""Moments: what of all that happens somebody may be told. Most are entries, some are due by the clock."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from fleet.domain.timeline import EntryKind


class Moment(StrEnum):
    """The values are the `type` of a webhook, and what routes name."""

    FIRST_SEEN = "event.first_seen"
    CHANGED = "event.changed"
    CLAIMED = "event.claimed"
    UNCLAIMED = "event.unclaimed"
    UNDECIDED = "event.undecided"
    PROPOSED = "approval.proposed"
    DECIDED = "approval.decided"
    WITHDRAWN = "approval.withdrawn"
    OVERDUE = "approval.overdue"
    REFUSED = "approval.refused"
    CORRECTED = "approval.corrected"
    STARTED = "event.started"
    ENDED = "event.ended"
    SOURCE_QUIET = "source.quiet"
    SET_UNWATCHED = "set.unwatched"
    SET_LOWERED = "set.lowered"
    COVERAGE_OPENED = "coverage.opened"
    COVERAGE_CLOSED = "coverage.closed"
    MAINTENANCE_ANNOUNCED = "maintenance.announced"
    MAINTENANCE_ENDED = "maintenance.ended"
    AUDIT_FAILED = "audit.failed"
    STORAGE_TROUBLE = "storage.trouble"
    BREAK_GLASS = "break_glass.used"
    ACCOUNT = "account.notice"
    CHANNEL_FAILING = "channel.failing"
    CHANNEL_WORKS = "channel.works"


# What a delivery may be besides: several moments at once, and a try.
GROUP = "group"
TEST = "test"

# Which entry is which moment. Everything else on the timeline is for who looks at it.
OF_ENTRY: Mapping[EntryKind, Moment] = {
    EntryKind.EVENT_SEEN: Moment.FIRST_SEEN,
    EntryKind.EVENT_CHANGED: Moment.CHANGED,
    EntryKind.EVENT_REOPENED: Moment.CHANGED,
    EntryKind.EVENT_CLAIMED: Moment.CLAIMED,
    EntryKind.APPROVAL_PROPOSED: Moment.PROPOSED,
    EntryKind.APPROVAL_CONSENTED: Moment.DECIDED,
    EntryKind.APPROVAL_PLANNED: Moment.DECIDED,
    EntryKind.APPROVAL_GRANTED: Moment.DECIDED,
    EntryKind.EVENT_HELD: Moment.DECIDED,
    EntryKind.APPROVAL_WITHDRAWN: Moment.WITHDRAWN,
    EntryKind.APPROVAL_REFUSED: Moment.REFUSED,
    EntryKind.APPROVAL_LAPSED: Moment.REFUSED,
    EntryKind.APPROVAL_CORRECTED: Moment.CORRECTED,
    EntryKind.EVENT_STARTED: Moment.STARTED,
    EntryKind.EVENT_ENDED: Moment.ENDED,
    EntryKind.EVENT_UNWATCHED: Moment.SET_UNWATCHED,
    EntryKind.SET_UNWATCHED: Moment.SET_UNWATCHED,
    EntryKind.SET_LOWERED: Moment.SET_LOWERED,
    EntryKind.SOURCE_QUIET: Moment.SOURCE_QUIET,
    EntryKind.COVERAGE_OPENED: Moment.COVERAGE_OPENED,
    EntryKind.COVERAGE_CLOSED: Moment.COVERAGE_CLOSED,
    EntryKind.AUDIT_FAILED: Moment.AUDIT_FAILED,
    EntryKind.STORAGE_TROUBLE: Moment.STORAGE_TROUBLE,
    EntryKind.BREAK_GLASS_USED: Moment.BREAK_GLASS,
    EntryKind.PERSON_CHANGED: Moment.ACCOUNT,
    EntryKind.TOKEN_CREATED: Moment.ACCOUNT,
    EntryKind.TOKEN_EXPIRES: Moment.ACCOUNT,
    EntryKind.NEW_DEVICE: Moment.ACCOUNT,
    EntryKind.LOGINS_REFUSED: Moment.ACCOUNT,
    EntryKind.MAINTENANCE_SCHEDULED: Moment.MAINTENANCE_ANNOUNCED,
    EntryKind.MAINTENANCE_ENDED: Moment.MAINTENANCE_ENDED,
    EntryKind.MAINTENANCE_END_NOT_SEEN: Moment.MAINTENANCE_ENDED,
    EntryKind.MAINTENANCE_NEVER_STARTED: Moment.MAINTENANCE_ENDED,
    EntryKind.CHANNEL_FAILING: Moment.CHANNEL_FAILING,
    EntryKind.CHANNEL_WORKS: Moment.CHANNEL_WORKS,
}

# What somebody is told of their own account: by all channels that they have alone, whatever routes say.
PERSONAL = frozenset({Moment.ACCOUNT})
# Of what is changed about a person (`did`), they are told of what lets somebody in as them.
TOLD_OF_PERSON = frozenset(
    {
        "password", "factor-added", "factor-removed", "factors-reset", "codes-made", "code-used", "linked", "signed-on",
    }
)  # fmt: skip


def is_personal(kind: EntryKind, data: Mapping[str, Any]) -> bool:
    """Whether an entry is told to the person whom it is about (`person` in its data)."""
    if OF_ENTRY.get(kind) not in PERSONAL or "person" not in data:
        return False
    return kind is not EntryKind.PERSON_CHANGED or data.get("did") in TOLD_OF_PERSON


# Whoever keeps a thing for an event, an incident or a card, hears of these to its end, whatever routes say.
FOLLOWED = frozenset(
    {
        Moment.CHANGED, Moment.CLAIMED, Moment.DECIDED, Moment.WITHDRAWN, Moment.REFUSED, Moment.CORRECTED,
        Moment.STARTED, Moment.ENDED,
    }
)  # fmt: skip
# Routes that notify of one of these also notify of its correction.
CORRECTED_BY_LATE_ANSWER = (Moment.WITHDRAWN, Moment.REFUSED, Moment.STARTED)
# After these an approval is on its way, and Azure's answer may be overdue a while later.
SENT = (EntryKind.APPROVAL_GRANTED, EntryKind.APPROVAL_CONSENTED, EntryKind.APPROVAL_DUE)
# Somebody ought to be told of these: an event of which no route wants to know is an alarm.
MUST_BE_TOLD = (Moment.FIRST_SEEN,)


class OnlyIf(StrEnum):
    """What must still hold when a moment that is due by the clock is told: nobody is on it, nobody has decided, Azure
    has not answered.
    """

    ALWAYS = ""
    UNCLAIMED = "unclaimed"
    UNDECIDED = "undecided"
    UNANSWERED = "unanswered"
