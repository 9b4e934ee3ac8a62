"""Notification types, route conditions, staleness, retries, and states of deliveries."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.people import ADMIN, Place, Right, Rights, in_scopes, speaks_of
from fleet.domain.policy.hours import in_hours, is_among, normalized, stated_values
from fleet.domain.reasons import Reason
from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.timeline import EntryKind


class NotificationType(StrEnum):
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
OF_ENTRY: Mapping[EntryKind, NotificationType] = {
    EntryKind.EVENT_SEEN: NotificationType.FIRST_SEEN,
    EntryKind.EVENT_CHANGED: NotificationType.CHANGED,
    EntryKind.EVENT_REOPENED: NotificationType.CHANGED,
    EntryKind.EVENT_CLAIMED: NotificationType.CLAIMED,
    EntryKind.APPROVAL_PROPOSED: NotificationType.PROPOSED,
    EntryKind.APPROVAL_CONSENTED: NotificationType.DECIDED,
    EntryKind.APPROVAL_PLANNED: NotificationType.DECIDED,
    EntryKind.APPROVAL_GRANTED: NotificationType.DECIDED,
    EntryKind.EVENT_HELD: NotificationType.DECIDED,
    EntryKind.APPROVAL_WITHDRAWN: NotificationType.WITHDRAWN,
    EntryKind.APPROVAL_REFUSED: NotificationType.REFUSED,
    EntryKind.APPROVAL_LAPSED: NotificationType.REFUSED,
    EntryKind.APPROVAL_CORRECTED: NotificationType.CORRECTED,
    EntryKind.EVENT_STARTED: NotificationType.STARTED,
    EntryKind.EVENT_ENDED: NotificationType.ENDED,
    EntryKind.EVENT_UNWATCHED: NotificationType.SET_UNWATCHED,
    EntryKind.SET_UNWATCHED: NotificationType.SET_UNWATCHED,
    EntryKind.SET_LOWERED: NotificationType.SET_LOWERED,
    EntryKind.SOURCE_QUIET: NotificationType.SOURCE_QUIET,
    EntryKind.COVERAGE_OPENED: NotificationType.COVERAGE_OPENED,
    EntryKind.COVERAGE_CLOSED: NotificationType.COVERAGE_CLOSED,
    EntryKind.AUDIT_FAILED: NotificationType.AUDIT_FAILED,
    EntryKind.STORAGE_TROUBLE: NotificationType.STORAGE_TROUBLE,
    EntryKind.BREAK_GLASS_USED: NotificationType.BREAK_GLASS,
    EntryKind.PERSON_CHANGED: NotificationType.ACCOUNT,
    EntryKind.TOKEN_CREATED: NotificationType.ACCOUNT,
    EntryKind.TOKEN_EXPIRES: NotificationType.ACCOUNT,
    EntryKind.NEW_DEVICE: NotificationType.ACCOUNT,
    EntryKind.LOGINS_REFUSED: NotificationType.ACCOUNT,
    EntryKind.MAINTENANCE_SCHEDULED: NotificationType.MAINTENANCE_ANNOUNCED,
    EntryKind.MAINTENANCE_ENDED: NotificationType.MAINTENANCE_ENDED,
    EntryKind.MAINTENANCE_END_NOT_SEEN: NotificationType.MAINTENANCE_ENDED,
    EntryKind.MAINTENANCE_NEVER_STARTED: NotificationType.MAINTENANCE_ENDED,
    EntryKind.CHANNEL_FAILING: NotificationType.CHANNEL_FAILING,
    EntryKind.CHANNEL_WORKS: NotificationType.CHANNEL_WORKS,
}

# What somebody is told of their own account: by all channels that they have alone, whatever routes say.
PERSONAL = frozenset({NotificationType.ACCOUNT})
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
        NotificationType.CHANGED,
        NotificationType.CLAIMED,
        NotificationType.DECIDED,
        NotificationType.WITHDRAWN,
        NotificationType.REFUSED,
        NotificationType.CORRECTED,
        NotificationType.STARTED,
        NotificationType.ENDED,
    }
)
# Routes that notify of one of these also notify of its correction.
CORRECTED_BY_LATE_ANSWER = (NotificationType.WITHDRAWN, NotificationType.REFUSED, NotificationType.STARTED)
# After these an approval is on its way, and Azure's answer may be overdue a while later.
AWAITING_ANSWER = (EntryKind.APPROVAL_GRANTED, EntryKind.APPROVAL_CONSENTED, EntryKind.APPROVAL_DUE)
# Somebody ought to be told of these: an event of which no route wants to know is an alarm.
ALWAYS_NOTIFY = (NotificationType.FIRST_SEEN,)


class SendCondition(StrEnum):
    """What must still hold when a moment that is due by the clock is told: nobody is on it, nobody has decided, Azure
    has not answered.
    """

    ALWAYS = ""
    UNCLAIMED = "unclaimed"
    UNDECIDED = "undecided"
    UNANSWERED = "unanswered"


# When a channel is tried again, and when a message is given up.

FIRST_SECONDS = 2.0
LONGEST_SECONDS = 300.0
# A receiver may ask for more than our own longest pause, but not for ever.
LONGEST_ASKED_SECONDS = 3600.0
GIVE_UP_AFTER = timedelta(days=1)
# So often in a row, and people are told of it through another channel.
FAILING_AFTER = 3


def pause_seconds(failures: int, *, chance: float, asked: float | None = None) -> float:
    """The pause after so many failures in a row, `chance` being 0 to 1: each twice as long as the one before, and
    spread. What the receiver asked for counts where it is longer.
    """
    ceiling = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_SECONDS)
    own = ceiling * (0.5 + chance / 2)
    return own if asked is None else max(own, min(asked, LONGEST_ASKED_SECONDS))


# Routes: who is told what. Pure: which of them want a moment, and when they want to be told.


@dataclass(frozen=True, slots=True)
class StandingRoute:
    """A route as it stands. The fields are those of the model `Route`; `route_id` is 0 while it is not saved."""

    name: str = ""
    channel_id: int | None = None
    moments: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    set_pattern: str = ""
    service: str = ""
    resource_group: str = ""
    weekdays: tuple[int, ...] = ()
    from_time: time | None = None
    until_time: time | None = None
    time_zone: str = "UTC"
    unclaimed_after_seconds: int | None = None
    before_decide_by_seconds: int | None = None
    enabled: bool = True
    deleted: bool = False
    owner_id: int | None = None
    position: int = 0
    version: int = 1
    route_id: int = 0

    @property
    def only_if(self) -> SendCondition:
        """What must still hold when a step of escalation is told; `ALWAYS` for what is no step."""
        if self.unclaimed_after_seconds is not None:
            return SendCondition.UNCLAIMED
        if self.before_decide_by_seconds is not None:
            return SendCondition.UNDECIDED
        return SendCondition.ALWAYS


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What routes judge of one moment. `at` is when it happened; of a first sighting, what steps of escalation count
    from. `decide_by` is the event's deadline as it is known now.

    `event_type` and `source` are empty for what is about no event. `place` is that of its set; of a cache it has the
    service alone (`Place("cache", "", service)`); None for what is about the installation. `by` is who did it.
    """

    moment: NotificationType
    at: datetime
    severity: str
    event_type: str = ""
    source: str = ""
    place: Place | None = None
    drill: bool = False
    decide_by: datetime | None = None
    by: str = ""


# What people say of a route; the rest is its place and its life.
ROUTE_SAID = (
    "name", "channel_id", "moments", "event_types", "sources", "severities", "set_pattern", "service",
    "resource_group", "weekdays", "from_time", "until_time", "time_zone", "unclaimed_after_seconds",
    "before_decide_by_seconds",
)  # fmt: skip


def changed_route(route: StandingRoute, fields: Mapping[str, Any]) -> StandingRoute:
    """The route with what somebody says of it (of `ROUTE_SAID`), tidied."""
    return replace(route, **{name: normalized(value) for name, value in fields.items()})


# Which moments start (or move) the clock of a step of escalation; its own `moments` stay empty.
CLOCKED: dict[SendCondition, tuple[NotificationType, ...]] = {
    SendCondition.UNCLAIMED: (NotificationType.FIRST_SEEN,),
    SendCondition.UNDECIDED: (NotificationType.FIRST_SEEN, NotificationType.CHANGED),
}


def matches(route: StandingRoute, facts: MessageFacts, *, now: datetime) -> bool:
    """Whether a route in force wants this moment. Its hours are those in which it would be told (`told_at`).

    A route that names types or sources of events, or places, says nothing of what has none. Drills are told as well.
    """
    if not route.enabled or route.deleted or not _of_moment(route, facts.moment):
        return False
    told = told_at(route, facts, now=now)
    return (
        told is not None
        and is_among(facts.event_type, route.event_types)
        and is_among(facts.source, route.sources)
        and is_among(facts.severity, route.severities)
        and speaks_of(route, facts.place)
        and in_hours(route, told)
    )


def told_at(route: StandingRoute, facts: MessageFacts, *, now: datetime) -> datetime | None:
    """When this is due: now, or by the clock of a step of escalation, which may be past already. None for a step before
    *decide by* where there is none.
    """
    if route.unclaimed_after_seconds is not None:
        return facts.at + timedelta(seconds=route.unclaimed_after_seconds)
    if route.before_decide_by_seconds is not None:
        return facts.decide_by and facts.decide_by - timedelta(seconds=route.before_decide_by_seconds)
    return now


def may_be_told(rights: Rights, names: Collection[str], facts: MessageFacts, *, scoped: bool) -> bool:
    """Whether a person with these rights, whom entries call by one of these names, may hear of it through a channel of
    their own. With `scoped` reading they hear what lies in their scopes, as they see it; and a proposal is for those
    who may consent to it.
    """
    if not rights.may(Right.READ):
        return False
    narrowed = scoped and bool(rights.scopes) and ADMIN not in rights.groups
    if narrowed and (facts.place is None or not in_scopes(facts.place, rights.scopes)):
        return False
    if facts.moment is NotificationType.PROPOSED:
        return facts.by not in names and rights.may(Right.OVERRIDE, facts.place)
    return True


def route_wording(route: StandingRoute, channel: str) -> Reason:
    """The whole route, with its channel's name (empty: every channel of the installation), as entries keep it."""
    return Reason("route", channel=channel, **stated_values(route))


def _of_moment(route: StandingRoute, moment: NotificationType) -> bool:
    step = route.only_if
    if moment in PERSONAL:
        return False
    if step:
        return moment in CLOCKED[step]
    wanted = {moment, *(CORRECTED_BY_LATE_ANSWER if moment is NotificationType.CORRECTED else ())}
    return not route.moments or any(one.value in route.moments for one in wanted)


# When nobody needs to be told any more: since it happened, what it was about has moved on.

# Of an event that is over only this is told: how it ended.
OF_THE_END = frozenset({NotificationType.ENDED})
# What a newer message of the same event to the same channel says as well.
SUPERSEDED_BY = {
    NotificationType.CHANGED: frozenset({NotificationType.CHANGED, NotificationType.STARTED, NotificationType.ENDED})
}
# While Azure has not answered.
UNANSWERED = frozenset({ApprovalState.GRANTED, ApprovalState.RELAYING})
# A decision that came to nothing: that is told by a message of its own, or needs none.
CAME_TO_NOTHING = frozenset({ApprovalState.WITHDRAWN, ApprovalState.REFUSED, ApprovalState.LAPSED, ApprovalState.VOID})


@dataclass(frozen=True, slots=True)
class SubjectNow:
    """How what a message tells of is by now. `status` is None for what is no event.

    `approval` is the state of the approval that it tells of; `decided_anew`: another one is under way since.
    `undecided`: the event needs a decision; `claimed_by`: who is on it; `actor`: who did what is told; `held`: it is
    left to Azure. `newer` are the moments of newer messages of it for the same channel. `over`: of what is no event,
    that it has passed, or is there again after it had passed.
    """

    moment: NotificationType
    only_if: SendCondition = SendCondition.ALWAYS
    status: EventStatus | None = None
    approval: ApprovalState | None = None
    decided_anew: bool = False
    undecided: bool = False
    claimed_by: str = ""
    actor: str = ""
    held: bool = False
    watched: bool = False
    over: bool = False
    newer: frozenset[NotificationType] = frozenset()


def why_stale(now: SubjectNow) -> str:
    """A code, why this is not told any more; empty while it is."""
    if now.status is None:
        return "over" if now.over else ""
    if now.status is EventStatus.ENDED and now.moment not in OF_THE_END:
        return "event-over"
    if now.status is not EventStatus.ENDED and now.moment in OF_THE_END:
        return "event-open-again"
    return _condition(now) or _overtaken(now)


def _condition(now: SubjectNow) -> str:
    """Whether what a moment that is due by the clock waits for still holds."""
    if now.only_if in (SendCondition.UNCLAIMED, SendCondition.UNDECIDED) and not now.undecided:
        return "decided"
    if now.only_if is SendCondition.UNCLAIMED and now.claimed_by:
        return "claimed"
    if now.only_if is SendCondition.UNANSWERED and now.approval not in UNANSWERED:
        return "answered"
    return ""


def _overtaken(now: SubjectNow) -> str:
    """Whether something has happened since that makes it wrong, or needless."""
    if SUPERSEDED_BY.get(now.moment, frozenset()) & now.newer:
        return "superseded"
    match now.moment:
        case NotificationType.CLAIMED if now.claimed_by != now.actor:
            return "claim-ended"
        case NotificationType.PROPOSED if now.approval is not ApprovalState.PROPOSED:
            return "decided"
        case NotificationType.DECIDED if now.approval in CAME_TO_NOTHING:
            return "came-to-nothing"
        case NotificationType.DECIDED if now.approval is None and not now.held:
            return "hold-ended"
        case NotificationType.WITHDRAWN if now.decided_anew:
            return "decided"
        case NotificationType.OVERDUE if now.approval not in UNANSWERED:
            return "answered"
        case NotificationType.REFUSED if now.status is EventStatus.STARTED:
            return "started"
        case NotificationType.REFUSED if now.decided_anew:
            return "decided"
        case NotificationType.SET_UNWATCHED if now.watched:
            return "watched"
    return ""


# States of messages and deliveries, as data.


class MessageState(StrEnum):
    """One moment for one channel. `BATCHED`: a delivery carries it. `UNROUTED`: no route wanted it, nobody was told."""

    WAITING = "WAITING"
    # The values are older than the names; rows hold them.
    BATCHED = "PACKED"
    SENT = "TOLD"
    DROPPED = "DROPPED"
    GIVEN_UP = "GIVEN_UP"
    UNROUTED = "UNROUTED"


class DeliveryState(StrEnum):
    """One post to one channel, with one id however often it is tried."""

    QUEUED = "QUEUED"
    SENDING = "SENDING"
    DELIVERED = "DELIVERED"
    DROPPED = "DROPPED"
    GIVEN_UP = "GIVEN_UP"


DELIVERY_MOVES: Mapping[DeliveryState, tuple[DeliveryState, ...]] = {
    DeliveryState.QUEUED: (DeliveryState.SENDING, DeliveryState.DROPPED, DeliveryState.GIVEN_UP),
    # Back to QUEUED where the channel did not take it, or where nobody knows, since whoever sent it has died.
    DeliveryState.SENDING: (
        DeliveryState.QUEUED, DeliveryState.DELIVERED, DeliveryState.DROPPED, DeliveryState.GIVEN_UP,
    ),
    # Sent again by hand.
    DeliveryState.DELIVERED: (DeliveryState.QUEUED,),
    DeliveryState.DROPPED: (),
    DeliveryState.GIVEN_UP: (DeliveryState.QUEUED,),
}  # fmt: skip

# Nothing more is tried of these by itself.
SETTLED_DELIVERIES = frozenset({DeliveryState.DELIVERED, DeliveryState.DROPPED, DeliveryState.GIVEN_UP})

# What becomes of the messages that a delivery carries.
OF_DELIVERY: Mapping[DeliveryState, MessageState] = {
    DeliveryState.QUEUED: MessageState.BATCHED,
    DeliveryState.SENDING: MessageState.BATCHED,
    DeliveryState.DELIVERED: MessageState.SENT,
    DeliveryState.DROPPED: MessageState.DROPPED,
    DeliveryState.GIVEN_UP: MessageState.GIVEN_UP,
}


def delivery_sources(target: DeliveryState) -> list[str]:
    """The states from which a delivery may enter `target`; a sender that died left it SENDING, so that may be again."""
    found = [state.value for state, targets in DELIVERY_MOVES.items() if target in targets]
    return [*found, target.value] if target is DeliveryState.SENDING else found
