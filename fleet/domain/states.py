"""States of events, approvals and orders, and the permitted transitions, as data.

`EVENT_MOVES`, `APPROVAL_MOVES` and `ORDER_MOVES` map each state to the states that may follow. An operation changes a
state with one conditional UPDATE, whose WHERE comes from `approval_sources` or `order_sources`. The diagram in the
documentation is generated from these tables.
"""

from enum import StrEnum


class EventStatus(StrEnum):
    """Status of an event. It is always computed from sightings, by `fleet.domain.events.compute_state`."""

    SCHEDULED = "SCHEDULED"
    STARTED = "STARTED"
    ENDED = "ENDED"


class EndedAs(StrEnum):
    """How an event ended, as far as sightings show it."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    CANCELLED_OR_MISSED = "cancelled_or_missed"
    MACHINE_DELETED = "machine_deleted"
    UNKNOWN = "unknown"


class Certainty(StrEnum):
    SEEN = "seen"
    INFERRED = "inferred"


class ApprovalState(StrEnum):
    PROPOSED = "PROPOSED"
    WAITING = "WAITING"
    GRANTED = "GRANTED"
    RELAYING = "RELAYING"
    ACCEPTED = "ACCEPTED"
    CONFIRMED = "CONFIRMED"
    WITHDRAWN = "WITHDRAWN"
    REFUSED = "REFUSED"
    LAPSED = "LAPSED"
    VOID = "VOID"


class OrderState(StrEnum):
    OFFERED = "OFFERED"
    DELIVERED = "DELIVERED"
    ANSWERED = "ANSWERED"
    SUPERSEDED = "SUPERSEDED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class Presence(StrEnum):
    """How recently a machine reported. `expected`: it is enrolled and has never reported."""

    LIVE = "live"
    LATE = "late"
    SILENT = "silent"
    GONE = "gone"
    EXPECTED = "expected"


EVENT_MOVES: dict[EventStatus, tuple[EventStatus, ...]] = {
    EventStatus.SCHEDULED: (EventStatus.STARTED, EventStatus.ENDED),
    EventStatus.STARTED: (EventStatus.ENDED,),
    # A newer document that lists the event again reopens it.
    EventStatus.ENDED: (EventStatus.SCHEDULED, EventStatus.STARTED),
}

# Closed, and an answer of Azure that arrives later may show that the conclusion was wrong.
CORRECTABLE_APPROVALS = (ApprovalState.WITHDRAWN, ApprovalState.REFUSED, ApprovalState.LAPSED, ApprovalState.VOID)
# How an approval closes before an order was offered.
CLOSED_UNSENT = (ApprovalState.WITHDRAWN, ApprovalState.LAPSED, ApprovalState.VOID)

APPROVAL_MOVES: dict[ApprovalState, tuple[ApprovalState, ...]] = {
    ApprovalState.PROPOSED: (ApprovalState.WAITING, ApprovalState.GRANTED, *CLOSED_UNSENT),
    ApprovalState.WAITING: (ApprovalState.GRANTED, *CLOSED_UNSENT),
    # CONFIRMED: Started was seen while an order was delivered and its receipt never came (inferred). WITHDRAWN: the
    # decision no longer holds, and no machine is known to be asking Azure.
    ApprovalState.GRANTED: (
        *(ApprovalState.RELAYING, ApprovalState.ACCEPTED, ApprovalState.CONFIRMED),
        *CORRECTABLE_APPROVALS,
    ),
    ApprovalState.RELAYING: (ApprovalState.ACCEPTED, ApprovalState.CONFIRMED, *CORRECTABLE_APPROVALS),
    # Azure may cancel an event that it has agreed to start.
    ApprovalState.ACCEPTED: (ApprovalState.CONFIRMED, ApprovalState.VOID),
    ApprovalState.CONFIRMED: (),
    # Corrections only: Azure's 200 to one of its orders arrives late, or a late document shows that the event started
    # after Azure had accepted it.
    **dict.fromkeys(CORRECTABLE_APPROVALS, (ApprovalState.ACCEPTED, ApprovalState.CONFIRMED)),
}

CLOSED_ORDERS = (OrderState.ANSWERED, OrderState.SUPERSEDED, OrderState.EXPIRED, OrderState.CANCELLED)
ORDER_MOVES: dict[OrderState, tuple[OrderState, ...]] = {
    OrderState.OFFERED: (OrderState.DELIVERED, *CLOSED_ORDERS),
    OrderState.DELIVERED: CLOSED_ORDERS,
    **dict.fromkeys(CLOSED_ORDERS, ()),
}

# As the partial index names them: Postgres does not infer that a status other than ENDED is one of these.
OPEN_EVENTS = (EventStatus.SCHEDULED, EventStatus.STARTED)
# One live approval per event, one open order per approval: the partial unique indexes name these. A closed approval
# that may be corrected still counts as closed, and its event may be approved again.
LIVE_APPROVALS = tuple(
    state for state, targets in APPROVAL_MOVES.items() if targets and state not in CORRECTABLE_APPROVALS
)
RELAYED_APPROVALS = (ApprovalState.GRANTED, ApprovalState.RELAYING, ApprovalState.ACCEPTED)
OPEN_ORDERS = tuple(state for state, targets in ORDER_MOVES.items() if targets)


def approval_sources(target: ApprovalState) -> list[str]:
    """Return the states from which an approval may change to `target`."""
    return [state.value for state, targets in APPROVAL_MOVES.items() if target in targets]


def order_sources(target: OrderState) -> list[str]:
    """Return the states from which an order may change to `target`."""
    return [state.value for state, targets in ORDER_MOVES.items() if target in targets]
