"""States of messages and deliveries, as data."""

from collections.abc import Mapping
from enum import StrEnum


class MessageState(StrEnum):
    """One moment for one channel. `PACKED`: a delivery carries it. `UNROUTED`: no route wanted it, nobody was told."""

    WAITING = "WAITING"
    PACKED = "PACKED"
    TOLD = "TOLD"
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
    DeliveryState.QUEUED: MessageState.PACKED,
    DeliveryState.SENDING: MessageState.PACKED,
    DeliveryState.DELIVERED: MessageState.TOLD,
    DeliveryState.DROPPED: MessageState.DROPPED,
    DeliveryState.GIVEN_UP: MessageState.GIVEN_UP,
}


def delivery_sources(target: DeliveryState) -> list[str]:
    """The states from which a delivery may enter `target`; a sender that died left it SENDING, so that may be again."""
    found = [state.value for state, targets in DELIVERY_MOVES.items() if target in targets]
    return [*found, target.value] if target is DeliveryState.SENDING else found
