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
    reason: str = ""

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
        failed = any(order.outcome == "failed" for order in orders)
        if (out or failed) and not _early(facts):
            # Azure starts an event by itself from NotBefore on: nothing tells that it was us.
            reason = "The event started at NotBefore or later, and no machine told that Azure had accepted its order."
            return Step(Do.LAPSE, reason=reason, inferred=True)
        if out:
            return Step(
                Do.CONFIRM, reason="Started was seen while an order was out whose receipt never came.", inferred=True
            )
        if failed:
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
        if _start_is_on_its_way(orders, now, patience):
            return NOTHING
        if askable and not candidates:
            return Step(Do.REFUSE, reason=_nobody_would(askable, orders))
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


# Why an agent did not ask Azure, as its receipt says it, in words for people.
REFUSALS = {
    "expired": "the order had expired by the backend's clock",
    "wrong-machine": "the order was for another machine",
    "not-listed": "its newest document does not list the event",
    "already-started": "its newest document lists the event as Started",
    "unreadable": "it could not read the order",
    "unsigned": "the order was not signed",
    "bad-signature": "the order's signature is not good",
    "not-a-drill": "the event is a real one, and the order said that it was a drill",
    "real-event": "Azure has announced something real there",
    "another-drill": "it is still in another drill",
    "not-running": "its agent does not stay running",
}


def in_words(reason: str) -> str:
    """The reason of an agent's refusal in words."""
    return REFUSALS.get(reason, reason or "it gave no reason")


def _nobody_would(askable: list[MachineFacts], orders: list[OrderFacts]) -> str:
    said = {order.machine_id: in_words(order.reason) for order in orders if order.outcome == "refused"}
    by_agent = [f"{machine.name}: {said[machine.machine_id]}" for machine in askable if machine.machine_id in said]
    by_azure = any(o.refused and o.outcome == "answered" for o in orders)
    if not by_agent:
        return "Azure refused on every machine that could be asked."
    told = "; ".join(by_agent)
    others = " Azure refused on the others." if by_azure else ""
    return f"No machine that could be asked has passed it on ({told}).{others}"


def _start_is_on_its_way(orders: list[OrderFacts], now: datetime, patience: timedelta) -> bool:
    """An agent has read Started: its document comes with the next report, and nobody needs to be asked until then."""
    return any(o.reason == "already-started" and o.refused and now - o.offered_at < 2 * patience for o in orders)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Who is asked next and when, if nothing happens until then. `silent` is the machine that is waited for."""

    machine: MachineFacts
    at: datetime
    silent: MachineFacts | None = None

    @property
    def sentence(self) -> str:
        """Such as `vm3 is asked at 14:32:10 UTC if vm2 stays silent.`"""
        until = f" if {self.silent.name} stays silent" if self.silent is not None else ""
        return f"{self.machine.name} is asked at {self.at:%H:%M:%S} UTC{until}."


def outlook(
    *,
    state: ApprovalState,
    facts: EventFacts,
    orders: list[OrderFacts],
    now: datetime,
    patience: timedelta,
) -> Outlook | None:
    """What `next_step` will do about asking, told in advance; None when nobody will be asked any more.

    Its answer changes with the clock only where somebody's patience ends: it is asked itself about those moments.
    """
    ends = {order.offered_at + patience for order in orders} | {order.offered_at + 2 * patience for order in orders}
    ends |= {order.delivered_at + patience for order in orders if order.delivered_at is not None}
    for moment in [now, *sorted(end for end in ends if end > now)]:
        step = next_step(state=state, facts=facts, orders=orders, now=moment, patience=patience)
        if step.do is Do.OFFER and step.machine is not None:
            waited_for = next((order.machine_id for order in orders if order.open), None)
            silent = next((m for m in facts.machines if m.machine_id == waited_for), None)
            return Outlook(machine=step.machine, at=moment, silent=silent)
    return None
