"""Conditions of routes, retries, and states of deliveries."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.people import ADMIN, Place, Right, Rights, in_scopes, speaks_of
from fleet.domain.policy.hours import in_hours, is_among, stated_values
from fleet.domain.reasons import Reason
from fleet.domain.timeline import EntryKind
from fleet.notifications.notification_types import TYPE_OF_ENTRY, NotificationType

# Types of deliveries besides: several messages, and a test.
GROUP = "group"
TEST = "test"

# Changes of a user (`did`) that let someone sign in as them.
SIGN_IN_CHANGES = frozenset(
    {
        "password", "factor-added", "factor-removed", "factors-reset", "codes-made", "code-used", "linked", "signed-on",
    }
)  # fmt: skip


def is_personal(kind: EntryKind, data: Mapping[str, Any]) -> bool:
    """Return whether the user whom an entry is about (`person` in its data) is notified of it."""
    notification_type = TYPE_OF_ENTRY.get(kind)
    if notification_type is None or not notification_type.declared.personal or "person" not in data:
        return False
    return kind is not EntryKind.PERSON_CHANGED or data.get("did") in SIGN_IN_CHANGES


# Retries of a channel, and when a delivery is given up.

FIRST_SECONDS = 2.0
LONGEST_SECONDS = 300.0
# A receiver may request more than our longest pause, up to this.
LONGEST_ASKED_SECONDS = 3600.0
GIVE_UP_AFTER = timedelta(days=1)
# Failures in a row after which other channels report it.
FAILING_AFTER = 3


def pause_seconds(failures: int, *, chance: float, asked: float | None = None) -> float:
    """Return the pause after this many failures in a row: doubling, spread by `chance` (0 to 1), or what the receiver
    `asked` for where that is longer.
    """
    ceiling = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_SECONDS)
    own = ceiling * (0.5 + chance / 2)
    return own if asked is None else max(own, min(asked, LONGEST_ASKED_SECONDS))


# Routes: which notifications they match, and when those are due. No queries.


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
    def step(self) -> NotificationType | None:
        """The type of which it notifies by the clock, as a step of escalation; None for what is no step."""
        if self.unclaimed_after_seconds is not None:
            return NotificationType.UNCLAIMED
        return None if self.before_decide_by_seconds is None else NotificationType.UNDECIDED


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


def matches(route: StandingRoute, facts: MessageFacts, *, now: datetime) -> bool:
    """Return whether a route in force matches this notification. Its hours are those in which it is due (`due_at`).

    A route that names types or sources of events, or places, matches nothing without them. Drills match, too.
    """
    if not route.enabled or route.deleted or not _of_moment(route, facts.moment):
        return False
    at = due_at(route, facts, now=now)
    return (
        at is not None
        and is_among(facts.event_type, route.event_types)
        and is_among(facts.source, route.sources)
        and is_among(facts.severity, route.severities)
        and speaks_of(route, facts.place)
        and in_hours(route, at)
    )


def due_at(route: StandingRoute, facts: MessageFacts, *, now: datetime) -> datetime | None:
    """Return when this is due: now, or by the clock of a step of escalation, which may be past. None for a step before
    *decide by* where there is none.
    """
    if route.unclaimed_after_seconds is not None:
        return facts.at + timedelta(seconds=route.unclaimed_after_seconds)
    if route.before_decide_by_seconds is not None:
        return facts.decide_by and facts.decide_by - timedelta(seconds=route.before_decide_by_seconds)
    return now


def may_receive(rights: Rights, names: Collection[str], facts: MessageFacts, *, scoped: bool) -> bool:
    """Return whether a user with these rights, whom entries name by one of these `names`, may get it through a personal
    channel. With `scoped` reading it has to be in their scopes; a proposal is for users who may consent to it.
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
    if moment.declared.personal:
        return False
    if route.step is not None:
        return moment.value in route.step.declared.clock
    return not route.moments or not {moment.value, *moment.declared.also_named_by}.isdisjoint(route.moments)


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
