"""Conditions of routes, delays of retries, and states of messages and deliveries."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.people import ADMIN, Place, Right, Rights, in_scopes
from fleet.domain.timeline import EntryKind
from fleet.notifications.notification_types import NotificationType, type_of_entry

# Further types of deliveries: several messages, and a test.
GROUP = "group"
TEST = "test"

# Changes of a user (`did`) after which another person could sign in as them.
SIGN_IN_CHANGES = (
    "password", "factor-added", "factor-removed", "factors-reset", "codes-made", "code-used", "linked", "signed-on",
)  # fmt: skip


def is_personal(kind: EntryKind, data: Mapping[str, Any]) -> bool:
    """Return whether an entry of this kind notifies the user whom it is about (`person` in `data`)."""
    notification_type = type_of_entry(kind, data)
    if notification_type is None or not notification_type.declared.personal or "person" not in data:
        return False
    return kind is not EntryKind.PERSON_CHANGED or data.get("did") in SIGN_IN_CHANGES


# Retry delays of a channel, and the age at which a delivery is given up.

FIRST_SECONDS = 2.0
LONGEST_SECONDS = 300.0
# A receiver may request a pause longer than LONGEST_SECONDS, up to this.
LONGEST_ASKED_SECONDS = 3600.0
GIVE_UP_AFTER = timedelta(days=1)
# Failures in a row after which other channels report it.
FAILING_AFTER = 3


def pause_seconds(failures: int, *, chance: float, requested: float | None = None) -> float:
    """Return the pause in seconds after this many consecutive failures. It doubles up to a limit, and is randomised by
    `chance` (0 to 1). If the receiver `requested` a longer pause, that is returned.
    """
    ceiling = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_SECONDS)
    own = ceiling * (0.5 + chance / 2)
    return own if requested is None else max(own, min(requested, LONGEST_ASKED_SECONDS))


# Routes: their conditions, and the facts that `fleet.notifications.models.Route` matches. No queries.


@dataclass(frozen=True, slots=True)
class RouteConditions:
    """Conditions of a route. The names are those of the model `Route`."""

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


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Facts about a notification that are matched with routes. `at` is the time when it happened; for escalation steps,
    the first sighting. `decide_by` is the current decision deadline of the event.

    `event_type` and `source` are empty without an event. `place` has the set of the event; for a cache only the service
    (`Place("cache", "", service)`); None if it concerns the installation. `by` is the actor.
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


def may_receive(rights: Rights, names: Collection[str], facts: MessageFacts, *, scoped: bool) -> bool:
    """Return whether a user with these rights may receive this notification in a personal channel. `names` are the
    names of the user in timeline entries.

    With `scoped` (read access is limited to scopes), the subject must be in the user's scopes. A proposal is sent only
    to users who may consent to it.
    """
    if not rights.may(Right.READ):
        return False
    narrowed = scoped and bool(rights.scopes) and ADMIN not in rights.groups
    if narrowed and (facts.place is None or not in_scopes(facts.place, rights.scopes)):
        return False
    if facts.moment is NotificationType.PROPOSED:
        return facts.by not in names and rights.may(Right.OVERRIDE, facts.place)
    return True


# States of messages and deliveries.


class MessageState(StrEnum):
    """State of one notification for one channel. `BATCHED`: it is part of a delivery. `UNROUTED`: no route matched, so
    it was not sent.
    """

    WAITING = "WAITING"
    # Stored values, older than the names.
    BATCHED = "PACKED"
    SENT = "TOLD"
    DROPPED = "DROPPED"
    GIVEN_UP = "GIVEN_UP"
    UNROUTED = "UNROUTED"


class DeliveryState(StrEnum):
    """State of one delivery to one channel, across all attempts."""

    QUEUED = "QUEUED"
    SENDING = "SENDING"
    DELIVERED = "DELIVERED"
    DROPPED = "DROPPED"
    GIVEN_UP = "GIVEN_UP"


DELIVERY_MOVES: Mapping[DeliveryState, tuple[DeliveryState, ...]] = {
    DeliveryState.QUEUED: (DeliveryState.SENDING, DeliveryState.DROPPED, DeliveryState.GIVEN_UP),
    # Back to QUEUED if the channel did not accept it, or the result is unknown because the sender died.
    DeliveryState.SENDING: (
        DeliveryState.QUEUED, DeliveryState.DELIVERED, DeliveryState.DROPPED, DeliveryState.GIVEN_UP,
    ),
    # A user sent it again.
    DeliveryState.DELIVERED: (DeliveryState.QUEUED,),
    DeliveryState.DROPPED: (),
    DeliveryState.GIVEN_UP: (DeliveryState.QUEUED,),
}  # fmt: skip

REDELIVERABLE = [DeliveryState.DELIVERED.value, DeliveryState.GIVEN_UP.value]
OPEN_DELIVERIES = [DeliveryState.QUEUED.value, DeliveryState.SENDING.value]

# State of the messages in a delivery, by the state of the delivery.
OF_DELIVERY: Mapping[DeliveryState, MessageState] = {
    DeliveryState.QUEUED: MessageState.BATCHED,
    DeliveryState.SENDING: MessageState.BATCHED,
    DeliveryState.DELIVERED: MessageState.SENT,
    DeliveryState.DROPPED: MessageState.DROPPED,
    DeliveryState.GIVEN_UP: MessageState.GIVEN_UP,
}


def delivery_sources(target: DeliveryState) -> list[str]:
    """Return the states from which a delivery may change to `target`. SENDING may follow SENDING, because a process
    that was killed leaves a delivery in that state.
    """
    sources = [state.value for state, targets in DELIVERY_MOVES.items() if target in targets]
    return [*sources, target.value] if target is DeliveryState.SENDING else sources
