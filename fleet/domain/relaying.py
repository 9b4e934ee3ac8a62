"""What the relay does next for one approval. Pure: the caller carries the step out."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.guards import EventFacts, MachineFacts, who_is_asked
from fleet.domain.states import OPEN_ORDERS, ApprovalState, EventStatus, OrderState, Presence


class Do(StrEnum):
    NOTHING = "nothing"
    RING = "ring"
    OFFER = "offer"
    CONFIRM = "confirm"
    VOID = "void"
    LAPSE = "lapse"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """One order of the approval; `refused` means that asking this machine again is no use."""

    order_id: Any
    machine_id: int
    state: OrderState
    offered_at: datetime
    delivered_at: datetime | None = None
    outcome: str = ""
    azure_status: int | None = None

    @property
    def open(self) -> bool:
        return self.state in OPEN_ORDERS

    @property
    def refused(self) -> bool:
        if self.outcome == "refused":
            return True
        # 404, 410, 429 and 5xx mean "later" at the metadata service.
        return self.outcome == "answered" and self.azure_status in (400, 401, 403, 405, 422)


@dataclass(frozen=True, slots=True)
class Step:
    """`machine` is whom to offer to; `reason` one sentence; `inferred` for a conclusion instead of an answer."""

    do: Do
    machine: MachineFacts | None = None
    reason: str = ""
    inferred: bool = False


NOTHING = Step(Do.NOTHING)


def next_step(
    *,
    state: ApprovalState,
    facts: EventFacts,
    orders: list[OrderFacts],
    now: datetime,
    patience: timedelta,
) -> Step:
    """Decide the next step of an approval in GRANTED, RELAYING or ACCEPTED; any other state has none.

    `patience` is how long an order may go unanswered before the next machine is asked, and how long the relay waits
    for a receipt when the event moves while an order is out.
    """
    if state is ApprovalState.ACCEPTED:
        return _after_acceptance(facts)
    if state not in (ApprovalState.GRANTED, ApprovalState.RELAYING):
        return NOTHING
    open_order = next((order for order in orders if order.open), None)
    # Somebody may have asked Azure already without the receipt being here yet.
    out = [o for o in orders if o.delivered_at is not None and not o.outcome]
    fresh = any(now - (o.delivered_at or o.offered_at) < 2 * patience for o in orders if not o.outcome)
    untold = any(_may_yet_tell(facts, o, patience) for o in orders)

    if facts.status is EventStatus.STARTED:
        if fresh:
            return NOTHING
        if out:
            return Step(
                Do.CONFIRM, reason="Started was seen while an order was out whose receipt never came.", inferred=True
            )
        if any(order.outcome == "failed" for order in orders):
            reason = "Started was seen after a machine had asked Azure and got no answer."
            return Step(Do.CONFIRM, reason=reason, inferred=True)
        if untold and _early(facts):
            return NOTHING
        return Step(Do.VOID, reason="The event started without this approval.")
    if facts.status is EventStatus.ENDED:
        return (
            NOTHING
            if untold or (fresh and out)
            else Step(Do.VOID, reason="The event ended before the approval reached Azure.")
        )
    if facts.not_before is not None and facts.not_before <= now:
        if untold or (fresh and out):
            return NOTHING
        return Step(Do.LAPSE, reason="NotBefore came before any machine's order was accepted by Azure.")
    return _whom_to_ask(facts, orders, open_order, now, patience)


def _may_yet_tell(facts: EventFacts, order: OrderFacts, patience: timedelta) -> bool:
    """Whether a receipt may be in a spool: the order's machine is live or late, and has not told of the time since.

    So it is when Postgres or the gateway was away: Azure may have answered meanwhile, and even that the order had
    arrived may not be written here.
    """
    if order.outcome:
        return False
    machine = next((m for m in facts.machines if m.machine_id == order.machine_id), None)
    if machine is None or machine.presence not in (Presence.LIVE, Presence.LATE):
        return False
    return machine.told_until is None or machine.told_until < (order.delivered_at or order.offered_at) + 2 * patience


def _early(facts: EventFacts) -> bool:
    """Whether it started before NotBefore: somebody has approved it, and that may be us."""
    return facts.started_at is not None and (facts.not_before is None or facts.started_at < facts.not_before)


def _after_acceptance(facts: EventFacts) -> Step:
    if facts.status is EventStatus.STARTED:
        return Step(Do.CONFIRM, reason="Started was seen after Azure had answered 200.")
    if facts.status is EventStatus.ENDED:
        return Step(Do.CONFIRM, reason="The event was gone after Azure had answered 200.", inferred=True)
    # Other tenants on the host must agree too: that may last beyond NotBefore and is not overdue.
    return NOTHING


def _whom_to_ask(
    facts: EventFacts, orders: list[OrderFacts], open_order: OrderFacts | None, now: datetime, patience: timedelta
) -> Step:
    refused = {order.machine_id for order in orders if order.refused}
    last_asked = {order.machine_id: order.offered_at for order in sorted(orders, key=lambda o: o.offered_at)}
    askable = who_is_asked(facts)
    candidates = [m for m in askable if m.machine_id not in refused]
    if open_order is not None:
        # A machine that has stopped listing the event is waited for like any other: most likely the event is ending.
        machine = next((m for m in facts.machines if m.machine_id == open_order.machine_id and m.live), None)
        waited = now - (open_order.delivered_at or open_order.offered_at)
        if machine is not None and waited < patience:
            return Step(Do.RING, machine=machine) if open_order.delivered_at is None else NOTHING
        candidates = [m for m in candidates if m.machine_id != open_order.machine_id]
        if not candidates:
            # Nobody else to ask: the order stays where it is until it is answered or too late.
            return Step(Do.RING, machine=machine) if machine and open_order.delivered_at is None else NOTHING
        silent = "has not answered" if machine is not None else "is no longer live"
        reason = f"The machine asked before {silent}."
    else:
        if askable and not candidates:
            return Step(Do.REFUSE, reason="Azure refused on every machine that could be asked.")
        reason = ""
    fresh_ones = [m for m in candidates if m.machine_id not in last_asked]
    if fresh_ones:
        return Step(Do.OFFER, machine=fresh_ones[0], reason=reason)
    # Everyone was asked and stayed silent: begin again with the one whose turn is longest ago, not faster than
    # patience.
    again = sorted(candidates, key=lambda m: last_asked[m.machine_id])
    if again and now - last_asked[again[0].machine_id] >= patience:
        return Step(Do.OFFER, machine=again[0], reason=reason)
    return NOTHING
