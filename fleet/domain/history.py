"""Values for reports: months, and the decision and outcome of an event."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fleet.domain.states import ApprovalState, EndedAs, EventStatus
from fleet.domain.timeline import EntryKind

# Decisions of people and rules about events, as entries record them.
DECISIONS = (
    EntryKind.APPROVAL_PROPOSED,
    EntryKind.APPROVAL_CONSENTED,
    EntryKind.APPROVAL_PLANNED,
    EntryKind.APPROVAL_GRANTED,
    EntryKind.APPROVAL_WITHDRAWN,
    EntryKind.EVENT_HELD,
    EntryKind.HOLD_ENDED,
    EntryKind.WAVE_BEGAN,
)
# The steps of events and caches, few entries among many. An index has the same kinds.
ANNOUNCED = (EntryKind.EVENT_SEEN, EntryKind.MAINTENANCE_SCHEDULED)
STARTED = (EntryKind.EVENT_STARTED, EntryKind.MAINTENANCE_STARTED, EntryKind.DRILL_BEGAN)
ENDED = (
    EntryKind.EVENT_ENDED,
    EntryKind.MAINTENANCE_ENDED,
    EntryKind.MAINTENANCE_END_NOT_SEEN,
    EntryKind.MAINTENANCE_NEVER_STARTED,
    EntryKind.DRILL_ENDED,
)
FAILED = (EntryKind.APPROVAL_LAPSED, EntryKind.APPROVAL_REFUSED, EntryKind.APPROVAL_VOID, EntryKind.WAVE_STOPPED)
MILESTONES = tuple(sorted(kind.value for kind in ANNOUNCED + STARTED + ENDED + FAILED))
# The default period for a reader who has never marked changes as read, and the longest period of one report.
SHIFT = timedelta(hours=12)
LONGEST_LOOK = timedelta(days=31)
# Sent handovers are shown, and can be confirmed, for this long.
HANDOVER_LASTS = timedelta(days=3)
# Everything that happened is kept; a report never reaches back before the service that it is about.
FIRST_YEAR = 2016


class Decided(StrEnum):
    """The final decision of users or rules about an event."""

    ACCEPTED = "accepted"
    UNDER_WAY = "under-way"
    LAPSED = "lapsed"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    VOID = "void"
    LEFT = "left"
    UNDECIDED = "nobody"


class Happened(StrEnum):
    """What Azure did with the event, as far as it was observed."""

    WAITS = "waits"
    RUNS = "runs"
    RAN = "ran"
    CANCELLED = "cancelled"
    MAYBE = "maybe"
    DELETED = "deleted"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month in UTC."""

    year: int
    month: int

    @property
    def begin(self) -> datetime:
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The end of the month: the first moment of the next month."""
        return self.next.begin

    @property
    def next(self) -> "Month":
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def previous(self) -> "Month":
        return Month(self.year - (self.month == 1), (self.month - 2) % 12 + 1)

    def __str__(self) -> str:
        """Return the month as in URLs: `2026-11`."""
        return f"{self.year:04d}-{self.month:02d}"


def month_of(at: datetime) -> Month:
    at = at.astimezone(UTC)
    return Month(at.year, at.month)


def months_back(first: datetime | None, *, now: datetime, most: int) -> tuple[Month, ...]:
    """Return the months from the current one back to the month of `first`, at most `most` of them."""
    found = [month_of(now)]
    last = month_of(first) if first is not None else found[0]
    while found[-1] > last and found[-1].year >= FIRST_YEAR and len(found) < most:
        found.append(found[-1].previous)
    return tuple(found)


def decided(state: ApprovalState | None, *, accepted: bool, held: bool) -> Decided:
    """Return the final decision about an event.

    `state` is the state of the approval that counts (None: no approval). `accepted`: Azure answered 200. `held`: a user
    or rule decided to leave the event to Azure.
    """
    if accepted:
        return Decided.ACCEPTED
    if state is None or (state is ApprovalState.WITHDRAWN and held):
        return Decided.LEFT if held else Decided.UNDECIDED
    closed = {
        ApprovalState.CONFIRMED: Decided.ACCEPTED,
        ApprovalState.LAPSED: Decided.LAPSED,
        ApprovalState.REFUSED: Decided.REFUSED,
        ApprovalState.WITHDRAWN: Decided.WITHDRAWN,
        ApprovalState.VOID: Decided.VOID,
    }
    return closed.get(state, Decided.UNDER_WAY)


def happened(status: EventStatus, *, started: bool, ended_as: EndedAs | None) -> Happened:
    if status is not EventStatus.ENDED:
        return Happened.RUNS if started else Happened.WAITS
    if ended_as is EndedAs.MACHINE_DELETED:
        return Happened.DELETED
    if started:
        return Happened.RAN
    known = {EndedAs.CANCELLED: Happened.CANCELLED, EndedAs.CANCELLED_OR_MISSED: Happened.MAYBE}
    return known.get(ended_as, Happened.UNSEEN) if ended_as else Happened.UNSEEN
